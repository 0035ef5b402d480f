def load(source, namespace, name):
    ns = dict(namespace)
    exec(source, ns)
    return ns[name]
