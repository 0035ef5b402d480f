"""Random operators and effects: ATen runs them, in the order of the program, so that its streams are eager's."""

from assay.compiler.ops.registry import Kind, record

record(
    Kind.random,
    None,
    *(
        "rand rand_like randn randn_like randint randint.low randint_like randint_like.low_dtype randperm"
        " bernoulli bernoulli.p bernoulli.Tensor native_dropout uniform normal_functional multinomial exponential"
        " rrelu_with_noise_functional normal.float_Tensor normal.Tensor_float normal.Tensor_Tensor poisson"
    ).split(),
)
record(
    Kind.effect,
    None,
    *"copy_ _assert_async.msg _assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range".split(),
    *"sym_constrain_range_for_size _print set_.source_Tensor resize_ _local_scalar_dense".split(),
)
