package colocation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/group"
	"polder/tests/node"
)

// onKubernetes is the service that is measured on a node with a real kubelet, whose control plane is on the same machine.
var onKubernetes = service{"nginx in a pod of a Kubernetes node", "http", startNginx}

// kubernetesCells are those of the node.
func kubernetesCells() []cell {
	return []cell{{&onKubernetes, 20, &jobs[0]}, {&onKubernetes, 50, &jobs[0]}}
}

// kubernetesNode is a node with a pod for the service and one for the batch job. The benchmark starts their programs, in the cgroups
// that kubelet and containerd made for their containers.
type kubernetesNode struct {
	node           *node.Node
	service, batch *group.Group
	kubeconfig     string // of collect's account
}

// podIdle is the one line of shell that a user of a Kubernetes node has.
const podIdle = "cpu.idle on the pod"

func startKubernetesNode(b *testing.B) *kubernetesNode {
	b.Helper()
	controlplane.Need(b, "helm", "kubelet") // names how to build what is missing
	config, err := node.SchedulerConfig(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	c := controlplane.Start(b, controlplane.Options{SchedulerConfig: config})
	c.ApplyFile("../../deploy/kubernetes/crds")
	n := node.Start(b, c, node.Options{})
	c.Apply(pod("service", "shared_cores", "LS", `{"requests":{"cpu":"500m","memory":"64Mi"}}`))
	c.Apply(pod("batch", "reclaimed_cores", "BE", `{}`))
	l := &kubernetesNode{node: n, kubeconfig: c.AccountFor("collect")}
	for name, g := range map[string]**group.Group{"service": &l.service, "batch": &l.batch} {
		n.AwaitRunning(name)
		*g = l.group(n.ContainerCgroup(name, "c"))
	}
	return l
}

// pod is a pod's manifest: its class in both dialects, and its only container's resources.
func pod(name, katalyst, koordinator, resources string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default",
		"annotations":{"katalyst.kubewharf.io/qos_level":%q},"labels":{"koordinator.sh/qosClass":%q}},
		"spec":{"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never","resources":%s}]}}`, name, katalyst, koordinator, resources)
}

// group is a cgroup of the node, by its path on the machine.
func (l *kubernetesNode) group(cgroup string) *group.Group {
	g := &group.Group{Name: cgroup}
	for _, controller := range group.Controllers {
		if dir := l.node.CgroupPath(controller, cgroup); isDirectory(dir) {
			g.Dirs = append(g.Dirs, dir)
		}
	}
	return g
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// methods are what is compared on a node: kubelet alone, a line of shell, and Polder's policies.
func (l *kubernetesNode) methods() []method {
	pod := l.group(filepath.Dir(l.batch.Name))
	idle := func(b *testing.B, _ *measurement) func() {
		b.Helper()
		pod.Write(b, "cpu.idle", "1")
		return func() {
			pod.Write(b, "cpu.idle", "0")
			pod.Write(b, "cpu.shares", "2") // kubelet's value
		}
	}
	return []method{
		{"kubelet alone", func(*testing.B, *measurement) func() { return func() {} }},
		{podIdle, idle},
		{"Polder, policy katalyst", l.polder("katalyst")},
		{"Polder, policy koordinator", l.polder("koordinator")},
		{"Polder, policy harvest", l.polder("harvest")},
		{"Polder, policy harvest, --batch-class none", l.polder("harvest --batch-class none")},
	}
}

// polder runs the pipe in the node, in a cgroup beside kubepods.
func (l *kubernetesNode) polder(policy string) func(*testing.B, *measurement) func() {
	return func(b *testing.B, m *measurement) func() {
		b.Helper()
		dir := b.TempDir()
		journal := filepath.Join(dir, "journal")
		script := fmt.Sprintf(`for c in cpu cpuacct; do echo $$ > /sys/fs/cgroup/$c%[1]s/cgroup.procs; done
PATH=%[2]s:$PATH; collect --kubeconfig %[3]s --node %[4]s 2>%[5]s/collect.log | advise --policy %[6]s 2>%[5]s/advise.log | isolate --node %[4]s --journal %[7]s >%[5]s/ticks 2>%[5]s/isolate.log`,
			m.polder.Name, binaries.Dir(b), l.kubeconfig, l.node.Name, dir, policy, journal)
		ctx, cancel := context.WithCancel(context.Background())
		pipe := l.node.Command(ctx, "sh", "-c", script)
		if err := pipe.Start(); err != nil {
			b.Fatal(err)
		}
		return func() {
			b.Helper()
			if pids := m.polder.PIDs(b); len(pids) < len([]string{"collect", "advise", "isolate"}) {
				b.Errorf("only %v of the pipe run:\n%s", pids, logs(dir))
			}
			m.polder.Kill(b)
			cancel()
			_ = pipe.Wait() // it was killed
			restore := l.node.Command(context.Background(), binaries.Path(b, "isolate"), "--restore", "--if-exists", "--journal", journal)
			if out, err := restore.CombinedOutput(); err != nil {
				b.Fatalf("isolate --restore: %v\n%s", err, out)
			}
		}
	}
}

// measureKubernetes measures the cells of a node.
func measureKubernetes(b *testing.B, l *kubernetesNode, client string, table *table, rates rates, repeats *int) {
	const polderCgroup = "/polder"
	for _, controller := range []string{"cpu", "cpuacct"} {
		dir := l.node.CgroupPath(controller, polderCgroup)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	m := &measurement{client: client, repeats: repeats, protocol: onKubernetes.protocol, service: l.service, batch: l.batch, polder: l.group(polderCgroup), ownProcesses: l.batch.PIDs(b)}
	port := freePort(b)
	m.address = "127.0.0.1:" + port
	ownProcesses := l.service.PIDs(b)
	onKubernetes.start(b, l.service, dir, port)
	b.Cleanup(func() { l.service.Kill(b, ownProcesses...) }) // nginx's workers outlive a killed master, and keep the pod's cgroup
	awaitService(b, client, m.protocol, m.address)
	m.cells(b, kubernetesCells(), l.methods(), table, rates)
}
