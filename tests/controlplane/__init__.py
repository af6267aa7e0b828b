"""A real Kubernetes control plane for the tests: etcd, kube-apiserver and kube-controller-manager."""
