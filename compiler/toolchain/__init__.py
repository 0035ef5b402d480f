"""From generated text to callables: compilers, the cache, loading, launching."""
