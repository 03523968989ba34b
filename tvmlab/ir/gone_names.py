"""What Relay's time had and tvmlab does not carry: a table to read.

A row says the old name, its counterpart today and a remark, each of which may be missing. Names
under ``relay`` are those of ``tvm.relay``. A name of a module stands for all in it that has no row
of its own. Relay's operators are not here: see `tvmlab.ir.gone.operator`.
"""

ROWS = """
relay.ADT | - | data is tensors, tuples and shapes
relay.Clause | - | as relay.Match
relay.Constructor | - | as relay.ADT
relay.Feature | - | Relax is one language, without a list of features
relay.GlobalTypeVar | - | types have no names
relay.Match | tvm.relax.If | a branch on a condition; data types with constructors are gone
relay.Pattern | - | as relay.Match
relay.PatternConstructor | - | as relay.Match
relay.PatternTuple | - | as relay.Match
relay.PatternVar | - | as relay.Match
relay.PatternWildcard | - | as relay.Match
relay.Prelude | - | as relay.ADT
relay.RefCreate | - | values do not change
relay.RefRead | - | values do not change
relay.RefType | - | values do not change
relay.RefWrite | - | values do not change
relay.ScopeBuilder | tvm.relax.BlockBuilder | builds bindings
relay.StorageInfo | - | memory is planned in the module itself
relay.TypeCall | - | types take no types
relay.TypeConstraint | - | types take no types
relay.TypeData | - | as relay.ADT
relay.TypeFunctor | - | types are walked by hand
relay.TypeMutator | - | types are rebuilt by hand
relay.TypeRelation | tvm.ir.register_op_attr | as the attribute FInferType
relay.TypeVar | - | a function is written once for each type
relay.TypeVisitor | - | types are walked by hand
relay.adt | - | as relay.ADT
relay.analysis.AnnotatedRegionSet | - | MergeCompilerRegions keeps its own
relay.analysis.check_constant | tvm.ir.GenericConst | by isinstance
relay.analysis.extract_fused_functions | tvm.relax.transform.FuseOps | its functions
relay.analysis.get_calibration_data | tvm.relax.VirtualMachine | see set_instrument
relay.analysis.get_total_mac_number | tvmlab.models.cost.layer_costs | of an architecture
relay.aot | tvm.relax.VirtualMachine | runs what tvmlab.compile or tvm.compile makes
relay.backend.contrib | tvm.relax.backend.contrib | patterns and code generators of libraries
relay.backend.te_compiler | tvm.relax.transform.LegalizeOps | operators become TIR there
relay.build_config | tvm.transform.PassContext | with the same arguments
relay.collage | tvm.s_tir.meta_schedule | measures schedules, not partitions
relay.data_dep_optimization | - | no sparse weights
relay.debug | - | step through the passes with PassContext's instruments
relay.feature | - | as relay.Feature
relay.frontend.common | - | tvmlab.load has converters of its own
relay.frontend.from_caffe | tvmlab.load | export the model to ONNX
relay.frontend.from_caffe2 | tvmlab.load | export the model to ONNX
relay.frontend.from_coreml | tvmlab.load | export the model to ONNX
relay.frontend.from_darknet | tvmlab.load | export the model to ONNX
relay.frontend.from_keras | tvmlab.load | export the model to ONNX
relay.frontend.from_mxnet | tvmlab.load | export the model to ONNX
relay.frontend.from_oneflow | tvmlab.load | export the model to ONNX
relay.frontend.from_paddle | tvmlab.load | export the model to ONNX
relay.frontend.from_tensorflow | tvmlab.load | export the model to ONNX
relay.frontend.qnn_torch | - | export quantized modules to ONNX or TFLite
relay.loops | tvm.relax.Function | a loop is a function that calls itself
relay.memory_alloc | tvm.relax.transform.StaticPlanBlockMemory | after lowering
relay.op.contrib.arm_compute_lib | - | no code generator for it
relay.op.contrib.bnns | - | no code generator for it
relay.op.contrib.clml | tvm.relax.backend.adreno.clml |
relay.op.contrib.cmsisnn | - | went with the runtime for microcontrollers
relay.op.contrib.cublas | tvm.relax.backend.cuda.cublas |
relay.op.contrib.cudnn | tvm.relax.backend.cuda.cudnn |
relay.op.contrib.cutlass | tvm.relax.backend.cuda.cutlass |
relay.op.contrib.dnnl | - | write the pattern table
relay.op.contrib.ethosn | - | write the pattern table
relay.op.contrib.ethosu | - | went with the runtime for microcontrollers
relay.op.contrib.tensorrt | tvm.relax.backend.contrib.tensorrt |
relay.op.contrib.vitis_ai | - | no code generator for it
relay.op.dyn | tvm.relax.op.dynamic_strided_slice | elsewhere shapes are symbolic
relay.op.register | tvmlab.ir.dialect.register | ours; upstream registers in C++
relay.op.register_alter_op_layout | tvm.relax.transform.ConvertLayout | one pass for all operators
relay.op.register_compute | tvm.ir.register_op_attr | as the attribute FLegalize
relay.op.register_gradient | tvm.ir.register_op_attr | as the attribute FPrimalGradient
relay.op.register_legalize | tvm.ir.register_op_attr | as the attribute FLegalize
relay.op.register_pattern | tvm.relax.transform.AnnotateTIROpPattern | finds the pattern in TIR
relay.op.register_strategy | tvmlab.schedule | rules on TIR
relay.op.strategy | tvmlab.schedule | rules on TIR
relay.param_dict | tvm.runtime.save_param_dict | reads Relay's files
relay.parser | tvmlab.relay.fromtext | relay.fromtext and tvm.parser.fromtext are carried
relay.prelude | - | as relay.ADT
relay.qnn.RequantizeConfig | tvmlab.qnn.config.Requantization | requantize_config yields one
relay.qnn.current_requantize_config | tvmlab.qnn.config.resolve | resolve("") returns it
relay.qnn.op.legalizations | tvmlab.qnn.legalize | operators become TIR there
relay.qnn.register_qnn_canonicalize | tvm.ir.register_op_attr | as the attribute FLegalize
relay.qnn.register_qnn_legalize | tvm.ir.register_op_attr | as the attribute FLegalize
relay.qnn.transform | tvmlab.qnn.transform | its Legalize is CanonicalizeOps too
relay.quantize | - | quantize in PyTorch or ONNX Runtime, then tvmlab.load
relay.scope_builder | tvm.relax.BlockBuilder | builds bindings
relay.span | tvm.ir.Span | of any node
relay.testing.byoc | - | use AnnotateTarget
relay.testing.check_grad | tvm.relax.transform.Gradient | compare with differences by hand
relay.testing.darknet | - | export to ONNX
relay.testing.temp_op_attr | tvm.ir.Op | its methods set_attr and reset_attr
relay.testing.yolo_detection | - |
relay.transform.AlterOpLayout | tvm.relax.transform.ConvertLayout | with layouts that are asked for
relay.transform.AnnotateSpans | - | spans come from the reader
relay.transform.CanonicalizeCast | - |
relay.transform.CapturePostDfsIndexInSpans | - | was for Collage
relay.transform.CollagePartition | tvm.s_tir.meta_schedule | measures schedules, not partitions
relay.transform.CombineParallelBatchMatmul | tvm.relax.transform.CombineParallelMatmul |
relay.transform.CombineParallelConv2D | - |
relay.transform.CombineParallelDense | tvm.relax.transform.CombineParallelMatmul |
relay.transform.Conv2dToSparse | - | no sparse operators
relay.transform.Defunctionalization | - | functions are values
relay.transform.DefuseOps | - | take the module from before FuseOps
relay.transform.DenseToSparse | - | no sparse operators
relay.transform.DynamicToStatic | tvm.relax.transform.FoldConstant | folds what is constant
relay.transform.EtaExpand | - | constructors are gone
relay.transform.FastMath | tvm.relax.transform.FastMathTransform |
relay.transform.FirstOrderGradient | tvm.relax.transform.Gradient |
relay.transform.FlattenAtrousConv | - |
relay.transform.Inline | tvm.relax.transform.InlinePrivateFunctions |
relay.transform.InlineCompilerFunctionsBoundTo | tvm.relax.transform.InlinePrivateFunctions |
relay.transform.LambdaLift | tvm.relax.transform.LambdaLift |
relay.transform.LazyGradientInit | - |
relay.transform.Legalize | tvm.relax.transform.LegalizeOps | operators become TIR
relay.transform.ManifestAlloc | tvm.relax.transform.StaticPlanBlockMemory | after lowering
relay.transform.ManifestLifetimes | tvm.relax.transform.KillAfterLastUse | after lowering
relay.transform.MarkCompilerFunctionsAsExtern | - |
relay.transform.OutlineCompilerFunctionsWithExistingGlobalSymbols | - |
relay.transform.PartialEvaluate | - |
relay.transform.PlanDevices | tvm.relax.transform.RealizeVDevice |
relay.transform.SimplifyExpr | - | write it with relay.dataflow_pattern
relay.transform.SimplifyFCTranspose | tvm.relax.transform.FuseTransposeMatmul |
relay.transform.SplitArgs | - |
relay.transform.ToBasicBlockNormalForm | tvm.relax.transform.Normalize | every module has it
relay.transform.ToCPS | - |
relay.transform.ToMixedPrecision | tvm.relax.transform.ToMixedPrecision |
relay.transform.fake_quantization_to_integer | tvmlab.qnn.transform | with its rules
relay.transform.gradient | tvm.relax.transform.Gradient |
relay.transform.recast | tvm.relax.transform.ToMixedPrecision |
relay.transform.to_cps | - |
relay.transform.un_cps | - |
relay.type_functor | - | types are walked by hand
relay.vm | tvm.relax.VirtualMachine | runs what tvmlab.compile or tvm.compile makes

tvm.auto_scheduler | tvm.s_tir.meta_schedule | needs no templates either
tvm.auto_scheduler.ApplyHistoryBest | tvm.relax.transform.MetaScheduleApplyDatabase | of a database
tvm.auto_scheduler.LocalRPCMeasureContext | tvm.s_tir.meta_schedule.runner.LocalRunner |
tvm.auto_scheduler.SearchTask | tvm.s_tir.meta_schedule.TuneContext |
tvm.auto_scheduler.TaskScheduler | tvm.s_tir.meta_schedule.TaskScheduler |
tvm.auto_scheduler.TuningOptions | tvm.s_tir.meta_schedule.tune_tasks | its arguments
tvm.auto_scheduler.extract_tasks | tvm.s_tir.meta_schedule.relax_integration.extract_tasks |
tvm.auto_scheduler.register_workload | tvm.te.create_prim_func | tune_tir takes the function
tvm.autotvm | tvmlab.tune | over MetaSchedule, without templates
tvm.autotvm.LocalBuilder | tvmlab.tuning.LocalMeasurer | builds and measures
tvm.autotvm.LocalRunner | tvmlab.tuning.Measure | its number, repeat, timeout, min_repeat_ms
tvm.autotvm.RPCRunner | tvmlab.tuning.RemoteMeasurer | or tune with a tracker
tvm.autotvm.apply_history_best | tvmlab.compile | its argument records
tvm.autotvm.callback | tvmlab.tune | its arguments records and progress
tvm.autotvm.callback.log_to_file | tvmlab.tuning.Records | tune writes every measurement
tvm.autotvm.callback.progress_bar | tvmlab.tune | its argument progress
tvm.autotvm.measure_option | tvmlab.tuning.Measure | builder and runner in one
tvm.autotvm.record | tvmlab.tuning.Records |
tvm.autotvm.task.extract_from_program | tvmlab.tuning.tasks |
tvm.autotvm.template | tvm.s_tir.meta_schedule.ScheduleRule | what a template left open, rules find
tvm.autotvm.tuner.GATuner | tvmlab.tune | tuner="ga"
tvm.autotvm.tuner.GridSearchTuner | tvmlab.tune | tuner="gridsearch"
tvm.autotvm.tuner.RandomTuner | tvmlab.tune | tuner="random"
tvm.autotvm.tuner.XGBTuner | tvmlab.tune | tuner="xgb"
tvm.contrib.cuda_graph | tvm.relax.transform.RewriteCUDAGraph |
tvm.contrib.debugger | tvm.relax.VirtualMachine | see set_instrument
tvm.contrib.debugger.debug_executor | tvm.relax.VirtualMachine | see set_instrument
tvm.contrib.debugger.debug_runtime | tvm.relax.VirtualMachine | see set_instrument
tvm.contrib.ethosu | - | went with the runtime for microcontrollers
tvm.contrib.graph_executor.GraphModuleDebug | tvm.relax.VirtualMachine | see set_instrument
tvm.contrib.pipeline_executor | - | one machine runs one module
tvm.contrib.sparse | - | no sparse operators
tvm.contrib.tflite_runtime | - | LiteRT is a package of its own
tvm.driver.tvmc | tvmlab | in the shell the command tvmlab, which takes its options
tvm.hybrid | tvm.script.tirx | write the loops
tvm.lower | tvm.te.create_prim_func | then tvm.compile
tvm.micro | - | the runtime for microcontrollers went
tvm.runtime.executor | tvm.relax.VirtualMachine |
tvm.runtime.profiler_vm | tvm.relax.VirtualMachine | its method profile
tvm.runtime.profiling | tvm.relax.VirtualMachine | its method profile
tvm.script.tir_module | tvm.script.ir_module |
tvm.target.arm_cpu | tvm.target.Target | a tag, or {"kind": "llvm", "mtriple": ...}
tvm.target.bifrost | tvm.target.Target | a tag, or {"kind": "opencl", ...}
tvm.target.generic_func | - | tvmlab.schedule chooses by the target
tvm.target.hexagon | tvm.target.Target | a tag, such as "qcom/hexagon-v68"
tvm.target.intel_graphics | tvm.target.Target | {"kind": "opencl", ...}
tvm.target.mali | tvm.target.Target | {"kind": "opencl", ...}
tvm.target.micro | - | the runtime for microcontrollers went
tvm.target.override_native_generic_func | - | tvmlab.schedule chooses by the target
tvm.target.rasp | tvm.target.Target | {"kind": "llvm", "mtriple": ...}
tvm.target.riscv_cpu | tvm.target.Target | {"kind": "llvm", "mtriple": ...}
tvm.te.AutoInline | tvm.s_tir.Schedule | its method compute_inline
tvm.te.create_schedule | tvm.s_tir.Schedule | of tvm.te.create_prim_func([...])
tvm.te.decl_tensor_intrin | tvm.s_tir.TensorIntrin | its method register
tvm.te.extern_op | tvm.te.extern |
tvm.te.gradient | tvm.relax.transform.Gradient | of the graph
tvm.te.hybrid | tvm.script.tirx | write the loops
tvm.te.schedule | tvm.s_tir.Schedule |
tvm.te.schedule.Schedule.create_group | - | compute_at and reverse_compute_at, block by block
tvm.te.schedule.Stage.compute_root | tvm.s_tir.Schedule.compute_at | blocks begin there
tvm.te.schedule.Stage.double_buffer | tvm.s_tir.Schedule.annotate | as "double_buffer_scope"
tvm.te.schedule.Stage.env_threads | - | bind each loop
tvm.te.schedule.Stage.pragma | tvm.s_tir.Schedule.annotate | of a loop
tvm.te.schedule.Stage.prefetch | - | cache_read, or software_pipeline_stage as an annotation
tvm.te.schedule.Stage.set_scope | tvm.s_tir.Schedule.set_scope | by number
tvm.te.schedule.Stage.set_store_predicate | - | loops that do not divide get a predicate
tvm.te.schedule.Stage.storage_align | tvm.s_tir.Schedule.storage_align | by number
tvm.te.schedule.Stage.tensorize | tvm.s_tir.Schedule.tensorize | by the intrinsic's name
tvm.te.size_var | tvm.te.var |
tvm.tir.schedule | tvm.s_tir.schedule |
tvm.tir.usmp | tvm.relax.transform.StaticPlanBlockMemory |
tvm.topi.arm_cpu | tvmlab.schedule | schedules by rule
tvm.topi.generic | tvmlab.schedule | schedules by rule
tvm.topi.sparse | - | no sparse operators
tvm.topi.x86 | tvmlab.schedule | schedules by rule
"""
