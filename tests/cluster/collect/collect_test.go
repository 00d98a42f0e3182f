// Package collect tests collect on the real API: its watches, an API server that is away, and configuration at run time.
package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}, nil) }

// lab is the control plane with a node and a namespace for the test alone, and a copy of /proc and /sys as the node's machine.
type lab struct {
	*controlplane.ControlPlane
	t                                 *testing.T
	node, namespace, root, kubeconfig string
}

func start(t *testing.T) *lab {
	t.Helper()
	l := &lab{ControlPlane: controlplane.Shared(t), t: t, root: t.TempDir()}
	l.node, l.namespace = l.OwnName(), l.OwnNamespace()
	l.MakeNode(l.node, "48", "195924424Ki")
	l.kubeconfig = l.AccountFor("collect")
	l.write("proc/uptime", "1000.00 1.00")
	l.write("proc/stat", "cpu0 100 0 0 900")
	l.write("sys/devices/system/cpu/online", "0")
	l.write("sys/fs/cgroup/cgroup.controllers", "cpu memory pids")
	return l
}

func (l *lab) write(path, content string) {
	l.t.Helper()
	path = filepath.Join(l.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// cgroup creates a container's cgroup as the cgroupfs driver does.
func (l *lab) cgroup(tier, uid, container string) {
	l.write(fmt.Sprintf("sys/fs/cgroup/kubepods/%s/pod%s/%s/cpu.stat", tier, uid, container), "usage_usec 1000000\n")
}

func (l *lab) collect(args ...string) *pipe.Tool {
	l.t.Helper()
	return pipe.Start(l.t, "collect", append([]string{
		"--kubeconfig", l.kubeconfig, "--root", l.root, "--node", l.node, "--interval", "100ms", "--rescan", "200ms",
	}, args...)...)
}

// pod creates a pod and returns its UID.
func (l *lab) pod(name, node, level string) string {
	l.t.Helper()
	l.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, annotations: {katalyst.kubewharf.io/qos_level: %s}}
spec:
  nodeName: %s
  containers:
  - name: main
    image: main
    resources: {requests: {cpu: 500m, memory: 1Gi}}
`, name, l.namespace, level, node))
	return l.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
}

// kubectl is Kubectl in the test's namespace.
func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	return l.Kubectl(append([]string{"-n", l.namespace}, args...)...)
}

// until reads ticks until is returns "": is returns what the sample still lacks.
func (l *lab) until(x *pipe.Tool, what string, is func(*tick.Sample) string) *tick.Sample {
	l.t.Helper()
	deadline := time.Now().Add(controlplane.Soon)
	var lacks string
	for time.Now().Before(deadline) {
		s := x.Next().Sample
		if lacks = is(s); lacks == "" {
			return s
		}
	}
	l.t.Fatalf("%s: not within %s: %s", what, controlplane.Soon, lacks)
	return nil
}

// short summarizes the pods: name, class, what is missing, and the containers.
func short(s *tick.Sample) string {
	var out []string
	for i := range s.Pods {
		p := &s.Pods[i]
		words := []string{p.Name, p.QoS}
		if p.Missing != "" {
			words = append(words, "no "+p.Missing)
		}
		if p.Terminating {
			words = append(words, "terminating")
		}
		for _, c := range p.Containers {
			words = append(words, c.Name)
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// sourceError is the error of a source in sample.errors.
func sourceError(s *tick.Sample, source string) string {
	var out []string
	for _, e := range s.Errors {
		if e.Source == source {
			out = append(out, e.Error)
		}
	}
	return strings.Join(out, "\n")
}

func pods(want string) func(*tick.Sample) string {
	return func(s *tick.Sample) string {
		if got := short(s); got != want {
			return fmt.Sprintf("pods %q; want %q", got, want)
		}
		return ""
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	l := start(t)
	x := l.collect()
	// The first tick waits for the lists, but not for a server that has no CPU time.
	s := l.until(x, "an empty list without an error", func(s *tick.Sample) string {
		if e := sourceError(s, "pods") + sourceError(s, "node") + sourceError(s, "config"); e != "" {
			return e
		}
		return pods("")(s)
	})
	if *s.Capacity.MilliCPU != 48000 || *s.Allocatable.MemoryBytes != 195924424*1024 || s.Labels["kubernetes.io/hostname"] != l.node {
		t.Errorf("node: %+v, %+v, %v", s.Capacity, s.Allocatable, s.Labels)
	}
	uid := l.pod("web", l.node, "shared_cores")
	l.MakeNode("elsewhere", "8", "16Gi")
	l.pod("elsewhere", "elsewhere", "shared_cores")
	l.until(x, "a new pod", pods("web shared no cgroup"))
	l.cgroup("burstable", uid, strings.Repeat("0", 64))
	l.until(x, "its sandbox", pods("web shared"))
	l.cgroup("burstable", uid, fmt.Sprintf("%064x", 1))
	l.SetPodReady(l.namespace, "web")
	s = l.until(x, "its container", pods("web shared main"))
	if p := s.Pods[0]; p.UID != uid || p.Phase != "Running" || *p.Requests.MilliCPU != 500 || *p.Containers[0].Requests.MemoryBytes != 1<<30 {
		t.Errorf("pod %+v", p)
	}
	l.kubectl("annotate", "--overwrite", "pod", "web", "katalyst.kubewharf.io/qos_level=reclaimed_cores")
	l.until(x, "another class", pods("web reclaimed main"))
	l.kubectl("annotate", "--overwrite", "pod", "web", "katalyst.kubewharf.io/qos_level=best_cores")
	s = l.until(x, "no class", pods("web shared main"))
	if e := strings.Join(s.Pods[0].Errors, ""); !strings.Contains(e, `"best_cores": want dedicated_cores`) || sourceError(s, "pods") != "" {
		t.Errorf("reported errors of the pod %q, of the tick %q; want the pod's alone", e, sourceError(s, "pods"))
	}
	l.kubectl("annotate", "--overwrite", "pod", "web", "katalyst.kubewharf.io/qos_level=reclaimed_cores")
	l.kubectl("delete", "pod", "web", "--wait=false")
	l.until(x, "its deletion", pods("web reclaimed terminating main"))
	l.kubectl("delete", "pod", "web", "--force", "--grace-period=0")
	l.until(x, "its object's end", pods("web reclaimed no cluster terminating main"))
	if err := os.RemoveAll(filepath.Join(l.root, "sys/fs/cgroup/kubepods/burstable/pod"+uid)); err != nil {
		t.Fatal(err)
	}
	l.until(x, "its cgroup's end", pods(""))
	l.Kubectl("label", "node", l.node, "katalyst.kubewharf.io/pool=a")
	l.until(x, "the node's label", func(s *tick.Sample) string {
		if s.Labels["katalyst.kubewharf.io/pool"] != "a" {
			return fmt.Sprint(s.Labels)
		}
		return ""
	})
	if err := x.End(syscall.SIGTERM); err != nil {
		t.Errorf("collect: %v", err)
	}
}

// While the API server is away, the last known list stays, with its age in the errors; a start without the server assumes no pod to be
// reclaimed. When the server is back, so are all values.
func TestServerAway(t *testing.T) {
	l := start(t)
	uid := l.pod("batch", l.node, "reclaimed_cores")
	l.SetPodReady(l.namespace, "batch")
	l.cgroup("besteffort", uid, fmt.Sprintf("%064x", 1))
	x := l.collect()
	l.until(x, "the pod", pods("batch reclaimed main"))
	l.StopAPIServer()
	seconds := regexp.MustCompile(`not reachable for (\d+m.*|[3-9]|[1-9]\d)s \(`)
	since := func(s *tick.Sample) string {
		for _, source := range []string{"pods", "node"} {
			if e := sourceError(s, source); !seconds.MatchString(e) || !strings.Contains(e, "is stale") {
				return fmt.Sprintf("%s: %q", source, e)
			}
		}
		return pods("batch reclaimed main")(s)
	}
	l.until(x, "three seconds without a server", since)

	fresh := l.collect()
	l.until(fresh, "the error that the list was never read", func(s *tick.Sample) string {
		if short(s) != "pod"+uid+" shared no cluster "+fmt.Sprintf("%064x", 1) {
			t.Errorf("a start without the server: %s; want the pod, not assumed to be reclaimed", short(s))
		}
		if *s.Capacity.MilliCPU != 1000 || sourceError(s, "node") == "" {
			t.Errorf("capacity %+v, error %q; want the machine's own, and an error that names it", s.Capacity, sourceError(s, "node"))
		}
		e := sourceError(s, "pods")
		if !strings.Contains(e, "the pod list was never read: API server https://127.0.0.1:") || !strings.Contains(e, "connection refused") {
			return e
		}
		return ""
	})
	for range 10 {
		fresh.Next() // ticks continue
	}

	l.StartAPIServer()
	well := func(s *tick.Sample) string {
		if e := sourceError(s, "pods") + sourceError(s, "node") + sourceError(s, "config"); e != "" {
			return e
		}
		return pods("batch reclaimed main")(s)
	}
	l.until(x, "the server's return", well)
	l.until(fresh, "its return, for the one that never saw it", well)
	l.kubectl("annotate", "--overwrite", "pod", "batch", "katalyst.kubewharf.io/qos_level=dedicated_cores")
	for _, tool := range []*pipe.Tool{x, fresh} {
		l.until(tool, "a change after it", pods("batch dedicated main"))
	}
}

// Without permission, every tick has the refusal as an error, and is complete otherwise.
func TestForbidden(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.kubeconfig = l.KubeconfigFor(l.namespace, "default")
	// The client may try a watch before or after the list: the tick has the later refusal.
	l.until(l.collect(), "the refusals", func(s *tick.Sample) string {
		for source, what := range map[string]string{"pods": ` resource "pods"`, "node": ` resource "nodes"`, "config": ` resource "katalystcustomconfigs"`} {
			if e := sourceError(s, source); !strings.Contains(e, "was never read: API server") || !strings.Contains(e, "refuses") || !strings.Contains(e, "is forbidden") || !strings.Contains(e, what) {
				return fmt.Sprintf("%s: %q; want the refusal", source, e)
			}
		}
		return ""
	})
}
