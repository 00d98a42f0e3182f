// Package config tests configuration at run time: the colocation guide's objects change the thresholds of running tools, and an invalid
// object has its error in its own status.
package config

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// The guide's two texts, unchanged.
const (
	reclaimed = `apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata:
  name: eviction-configuration
spec:
  targetType:
    group: config.katalyst.kubewharf.io
    resource: evictionconfigurations
    version: v1alpha1

---
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: EvictionConfiguration
metadata:
  name: default
spec:
  config:
    evictionPluginsConfig:
      reclaimedResourcesEvictionPluginConfig:
        evictionThreshold:
          "katalyst.kubewharf.io/reclaimed_millicpu": 10
          "katalyst.kubewharf.io/reclaimed_memory": 10
`
	memory = `apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata:
  name: eviction-configuration
spec:
  targetType:
    group: config.katalyst.kubewharf.io
    resource: evictionconfigurations
    version: v1alpha1

---
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: EvictionConfiguration
metadata:
  name: default
spec:
  config:
    evictionPluginsConfig:
      memoryEvictionPluginConfig:
        enableNumaLevelDetection: false
        systemKswapdRateExceedTimesThreshold: 1
        systemKswapdRateThreshold: 2000
`
)

// admin is today's kind, with its registration.
const admin = `
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata: {name: admin-qos, namespace: default}
spec:
  targetType: {group: config.katalyst.kubewharf.io, version: v1alpha1, resource: adminqosconfigurations}
---
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: AdminQoSConfiguration
metadata: {name: all, namespace: default}
spec:
  config:
    evictionConfig:
      reclaimedResourcesEvictionConfig:
        evictionThreshold: {resource.katalyst.kubewharf.io/reclaimed_millicpu: %s}
`

const batchPod = `
apiVersion: v1
kind: Pod
metadata: {name: batch, namespace: default, annotations: {katalyst.kubewharf.io/qos_level: reclaimed_cores}}
spec:
  nodeName: n1
  containers:
  - name: main
    image: none
    resources:
      requests: {resource.katalyst.kubewharf.io/reclaimed_millicpu: 24k}
      limits: {resource.katalyst.kubewharf.io/reclaimed_millicpu: 24k}
`

// lab is a control plane with the running pipe of one idle node of 8 CPUs, of which 4 are offered to reclaimed pods.
type lab struct {
	*controlplane.ControlPlane
	t     *testing.T
	mu    sync.Mutex
	last  *tick.Tick
	count int
	log   strings.Builder
	stop  func() // ends the pipe
}

// The tests share a control plane and run one after the other: the objects of Katalyst's configuration apply to all nodes.
func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{}, func(c *controlplane.ControlPlane) {
		c.ApplyFile("../../../deploy/kubernetes/crds")
		c.Established()
	})
}

// toKCC makes the chart grant report the permissions for --to kcc.
const toKCC = "report.to={kcc}"

// offered is advise's offer on that machine, in milli-CPU.
const offered = 4000

func start(t *testing.T) *lab {
	t.Helper()
	l := &lab{ControlPlane: controlplane.Shared(t), t: t}
	t.Cleanup(func() {
		l.Kubectl("delete", "kcc,aqc,ec,pods", "--all", "-n", "default", "--grace-period=0", "--force")
	})
	l.MakeNode("n1", "8", "16Gi")
	l.Apply(batchPod)
	l.run(fmt.Sprintf("%s --root %s --node n1 --kubeconfig %s --interval 250ms | %s | %s --dry-run --node n1 | %s --max-age 10m --to kcc --node n1 --kubeconfig %s",
		binaries.Path(t, "collect"), idleMachine(t), l.AccountFor("collect"), binaries.Path(t, "advise"), binaries.Path(t, "evict"),
		binaries.Path(t, "report"), l.AccountFor("report", toKCC)))
	return l
}

// idleMachine is the root of an idle machine, whose time is this machine's.
func idleMachine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range map[string]string{
		"proc/loadavg": "0 0 0 1/1 1", "proc/stat": stat(8), "sys/devices/system/cpu/online": "0-7",
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids", "proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 12000000 kB\nMemAvailable: 12000000 kB\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/proc/uptime", filepath.Join(root, "proc/uptime")); err != nil {
		t.Fatal(err)
	}
	return root
}

func stat(cpus int) string {
	var b strings.Builder
	for i := range cpus {
		fmt.Fprintf(&b, "cpu%d 100 0 0 900\n", i)
	}
	return b.String()
}

// run keeps the newest tick of a pipe, and its logs.
func (l *lab) run(pipeline string) {
	l.t.Helper()
	cmd := exec.Command("sh", "-c", pipeline)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = l
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			line, err := tick.ParseLine(lines.Bytes())
			if err != nil {
				continue
			}
			decoded, err := line.Decode(tick.SectionSample, tick.SectionEviction, tick.SectionReport)
			if err == nil {
				l.mu.Lock()
				l.last, l.count = decoded, l.count+1
				l.mu.Unlock()
			}
		}
	}()
	l.stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-read
	}
	l.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-read
		_ = cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("the pipe's logs:\n%s", l.Log())
		}
	})
}

// Write receives the pipe's logs.
func (l *lab) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(b)
}

func (l *lab) Log() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

func (l *lab) newest() *tick.Tick {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// threshold is the reclaimed CPU's threshold, as a multiple of the offer, and whether it is met.
func (l *lab) threshold() string {
	t := l.newest()
	if t == nil || t.Eviction == nil {
		return "no tick"
	}
	for _, p := range t.Eviction.Pressures {
		if p.Rule == "reclaimed-resource-pressure-eviction-plugin" && p.Scope == "katalyst.kubewharf.io/reclaimed_millicpu" {
			return fmt.Sprintf("%v met=%v", p.Threshold/offered, p.Met)
		}
	}
	return fmt.Sprintf("not measured: %q", t.Eviction.Errors)
}

// soon waits until the pipe has a threshold, and logs how long that took.
func (l *lab) soon(what, want string) {
	l.t.Helper()
	begun := time.Now()
	l.Eventually(controlplane.Soon, what, func() string {
		if got := l.threshold(); got != want {
			return fmt.Sprintf("the threshold is %s; want %s", got, want)
		}
		return ""
	})
	l.t.Logf("%s: after %s", what, time.Since(begun).Round(time.Millisecond))
}

func (l *lab) create(text string) {
	l.t.Helper()
	if out, err := l.TryKubectl(text, "create", "-f", "-"); err != nil {
		l.t.Fatalf("kubectl create: %v\n%s", err, out)
	}
}

// valid waits for the condition of a KatalystCustomConfig.
func (l *lab) valid(name, status, reason, message, invalid string) {
	l.t.Helper()
	l.Eventually(controlplane.Soon, name+" is "+status, func() string {
		got := l.Kubectl("get", "kcc", "-n", "default", name, "-o",
			`jsonpath={range .status.conditions[?(@.type=="Valid")]}{.status}|{.reason}|{.message}{end}|{.status.invalidTargetConfigList}|{.status.observedGeneration}|{.metadata.generation}`)
		parts := strings.Split(got, "|")
		if len(parts) != 6 || parts[0] != status || parts[1] != reason || !strings.Contains(parts[2], message) || parts[3] != invalid || parts[4] != parts[5] {
			return fmt.Sprintf("the error is %q", got)
		}
		return ""
	})
}

// stays checks a few more ticks.
func (l *lab) stays(want string) {
	l.t.Helper()
	l.mu.Lock()
	from := l.count
	l.mu.Unlock()
	l.Eventually(controlplane.Soon, "more ticks", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.count < from+6 {
			return fmt.Sprint(l.count-from, " ticks")
		}
		return ""
	})
	if got := l.threshold(); got != want {
		l.t.Errorf("the threshold is %s; want %s to stay", got, want)
	}
}
