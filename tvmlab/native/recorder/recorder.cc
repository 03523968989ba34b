// The recorder for TVM's virtual machine: when each of its calls begins and ends, how many bytes of
// tensors it is passed, and the dtypes and shapes of those tensors.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

namespace ffi = tvm::ffi;

struct Event {  // Python reads rows of an int64 array
  int64_t name, depth, start, end, bytes;
};

class Recorder {
 public:
  // Calls `main`, as an event of depth 0; the calls that the machine reports are nested in it.
  void Run(const ffi::Function& main, ffi::PackedArgs arguments) {
    open_.clear();
    Begin("main", arguments);
    ffi::Any result;
    main.CallPacked(arguments, &result);
    End();
  }

  // The machine calls this instrument before and after each of its own calls, with the function,
  // its name, whether it is before, the result, and the call's arguments.
  void Tell(ffi::PackedArgs told) {
    if (!told[2].cast<bool>()) return End();
    Begin(told[1].cast<std::string>(), told.Slice(4));
  }

  // Returns the names by number, the tensors of each name's first call, and the events in
  // the order in which they began; clears the events.
  ffi::Array<ffi::Any> Take() {
    const auto* first = reinterpret_cast<const char*>(events_.data());
    ffi::Array<ffi::Any> taken{names_, tensors_, ffi::Bytes(first, events_.size() * sizeof(Event))};
    events_.clear();
    return taken;
  }

 private:
  void Begin(const std::string& name, ffi::PackedArgs arguments) {
    const auto depth = static_cast<int64_t>(open_.size());
    open_.push_back(events_.size());
    events_.push_back({Number(name, arguments), depth, 0, 0, Bytes(arguments)});
    events_.back().start = Now();  // last, so that the lines above are not in the call's time
  }

  void End() {
    const int64_t now = Now();  // first, for the same reason
    if (open_.empty()) return;
    events_[open_.back()].end = now;
    open_.pop_back();
  }

  int64_t Number(const std::string& name, ffi::PackedArgs arguments) {
    const auto [found, added] = numbers_.emplace(name, names_.size());
    if (added) {
      names_.push_back(found->first);
      tensors_.push_back(Tensors(arguments));
    }
    return found->second;
  }

  // Formats a tensor list such as "float32 1x3x224x224".
  static ffi::Array<ffi::String> Tensors(ffi::PackedArgs arguments) {
    ffi::Array<ffi::String> texts;
    ForEachTensor(arguments, [&](const ffi::TensorView& view) {
      std::string text(ffi::DLDataTypeToString(view.dtype()));
      for (int32_t d = 0; d < view.ndim(); ++d) {
        text += (d == 0 ? " " : "x") + std::to_string(view.size(d));
      }
      texts.push_back(ffi::String(text));
    });
    return texts;
  }

  // A tensor that is passed twice is in memory only once.
  int64_t Bytes(ffi::PackedArgs arguments) {
    int64_t sum = 0;
    seen_.clear();
    ForEachTensor(arguments, [&](const ffi::TensorView& view) {
      const void* place = static_cast<const char*>(view.data_ptr()) + view.byte_offset();
      if (std::find(seen_.begin(), seen_.end(), place) != seen_.end()) return;
      seen_.push_back(place);
      sum += static_cast<int64_t>(ffi::GetDataSize(view.numel(), view.dtype()));
    });
    return sum;
  }

  template <typename Use>
  static void ForEachTensor(ffi::PackedArgs arguments, const Use& use) {
    for (int32_t i = 0; i < arguments.size(); ++i) {
      if (const auto view = arguments[i].try_cast<ffi::TensorView>()) use(*view);
    }
  }

  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::vector<Event> events_;
  std::vector<size_t> open_;
  std::vector<const void*> seen_;
  std::unordered_map<std::string, int64_t> numbers_;
  ffi::Array<ffi::String> names_;
  ffi::Array<ffi::Array<ffi::String>> tensors_;
};

ffi::Array<ffi::Function> Make() {
  auto recorder = std::make_shared<Recorder>();
  const auto tell = [recorder](ffi::PackedArgs told, ffi::Any*) { recorder->Tell(told); };
  const auto run = [recorder](ffi::PackedArgs given, ffi::Any*) {
    recorder->Run(given[0].cast<ffi::Function>(), given.Slice(1));
  };
  const auto take = [recorder] { return recorder->Take(); };
  return {ffi::Function::FromPacked(tell), ffi::Function::FromPacked(run),
          ffi::Function::FromTyped(take)};
  // The analyzer does not understand the reference counts with which tvm-ffi frees a list.
}  // NOLINT(clang-analyzer-unix.Malloc)

}  // namespace

// The macro's functions have unused parameters.
#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(make, Make)
