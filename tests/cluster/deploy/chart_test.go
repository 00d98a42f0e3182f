package deploy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

func TestLint(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, "lint", chart, "--strict", "--kube-version", "1.36.0"); err != nil {
		t.Error(out, err)
	}
}

// The API server accepts both forms with every option switched on.
func TestChartIsTakenByTheServer(t *testing.T) {
	c := cluster(t)
	for name, set := range map[string][]string{
		"armed":      {"dryRun=false"},
		"single":     {"form=single", "serviceAccount.perTool=true", "host.kubeletState=directory"},
		"containers": {"form=containers"},
		"restore":    {"restore=true", "centre.enabled=true"},
		"centre":     {"centre.enabled=true", "centre.action=delete", "centre.dryRun=true", "centre.evict.flags.taint-after=5m", "podLabels.team=x"},
		"everything": {
			"scheduler.enabled=true", "hostNetwork=true", "host.kubeletState=none",
			"host.seLinuxOptions.type=spc_t", "image.pullSecrets[0].name=registry", "podLabels.team=x", "podAnnotations.note=y",
			"metrics.enabled=true", "metrics.dashboard.enabled=true", "collect.flags.interval=2s", "advise.flags.reserve-cpu=2", "evict.action=delete", "report.to={cnr,table}",
		},
		"koordinator": {
			"policy=koordinator", "host.resctrl=true", "scheduler.enabled=true", "centre.enabled=true",
			"koordinator.sloConfig.create=true", "koordinator.priorityClasses=true", "koordinator.profiles.enabled=true", "koordinator.profiles.rounds=3",
		},
		"network":            {"network.enabled=true", "network.rate=1Gbit", "metrics.enabled=true"},
		"restore of network": {"network.enabled=true", "network.rate=1Gbit", "restore=true"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.TryKubectl(template(t, set...), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(out, "serverside-applied (server dry run)"); n < 11 {
				t.Errorf("%d objects were accepted:\n%s", n, out)
			}
		})
	}
	// Kubernetes before 1.30 has no such policies, and the chart omits them.
	old, err := helm(t, "template", "polder", chart, "--kube-version", "1.29.0")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(old, "ValidatingAdmissionPolicy") || strings.Contains(old, "recursiveReadOnly") || !strings.Contains(old, "kind: DaemonSet") {
		t.Error("for 1.29 the chart renders kinds that 1.29 does not have")
	}
	if _, err := helm(t, "template", "polder", chart, "--kube-version", "1.28.0"); err == nil {
		t.Error("the chart accepts 1.28")
	}
	if _, err := helm(t, "template", "polder", chart, "--kube-version", "1.35.0", "--set", "koordinator.profiles.enabled=true"); err == nil || !strings.Contains(err.Error(), "needs MutatingAdmissionPolicy, of Kubernetes 1.36 and later; this is v1.35.0") {
		t.Errorf("for 1.35 helm returns %v", err)
	}
}

func TestValuesThatAreNoGoodAreRefused(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"form=both":                      "at '/form': value must be one of 'single', 'containers'",
		"imgae.tag=x":                    "additional properties 'imgae' not allowed",
		"evict.action=kill":              "at '/evict/action': value must be one of 'log', 'evict', 'delete'",
		"advise.flags.input=x":           "at '/advise/flags/input'",
		"advise.flags.metrics-addr=x":    "at '/advise/flags/metrics-addr'",
		"metrics.ports.advise=0":         "at '/metrics/ports/advise': minimum: got 0, want 1",
		"advise.flags.Reserve=x":         "at '/advise/flags': additional properties 'Reserve' not allowed",
		"report.to={tty}":                "at '/report/to/0': value must be one of",
		"heartbeat.readySeconds=0":       "at '/heartbeat/readySeconds': minimum: got 0, want 1",
		"host.stateDir=var":              "at '/host/stateDir'",
		"resources.limits.memory=much":   "at '/resources/limits/memory'",
		"admissionPolicy=maybe":          "at '/admissionPolicy'",
		"image.pullPolicy=Sometimes":     "at '/image/pullPolicy'",
		"dryRun=perhaps":                 "at '/dryRun': got string, want boolean",
		"updateStrategy.type=Everything": "at '/updateStrategy/type'",
		"policy=both":                    "at '/policy': value must be one of 'katalyst', 'koordinator', 'harvest'",
		"advise.flags.policy=katalyst":   "at '/advise/flags/policy'",
		"collect.flags.slo-config=a/b":   "at '/collect/flags/slo-config'",

		"centre.enabled=true,centre.hostNetwork=true,metrics.enabled=true": "centre.hostNetwork and metrics.enabled exclude each other",

		"evict.flags.rules=MemoryEvikt":                                           `evict.flags.rules: no rule "MemoryEvikt": want some of BECPUEvict, `,
		"evict.flags.rules={MemoryEvict,b}":                                       `evict.flags.rules: no rule "b"`,
		"evict.flags.rules=b,admissionPolicy=never":                               `evict.flags.rules: no rule "b"`,
		"evict.flags.rules=b,form=single":                                         `evict.flags.rules: no rule "b"`,
		"evict.flags.rules=":                                                      `evict.flags.rules: no rule ""`,
		`evict.flags.rules=reclaimed-resource-pressure-eviction-plugin\,MemoryEv`: `evict.flags.rules: no rule "MemoryEv"`,

		"network.enabled=true":                        "network.enabled needs network.rate, as 1Gbit",
		"network.enabled=true,form=single":            "network.enabled needs form=containers",
		"network.enabled=true,network.rate=fast":      "at '/network/rate'",
		"network.enabled=true,network.batchRate=much": "at '/network/batchRate'",
		"network.enabled=true,network.rate=1000":      "at '/network/rate'",

		"koordinator.profiles.rounds=1":            "at '/koordinator/profiles/rounds': minimum: got 1, want 2",
		"koordinator.profiles.failurePolicy=Maybe": "at '/koordinator/profiles/failurePolicy'",
		"koordinator.sloConfig.name=Slo":           "at '/koordinator/sloConfig/name'",
		"koordinator.sloConfig.data.colocation=1":  "at '/koordinator/sloConfig/data/colocation'",
		"koordinator.priorityClasses=some":         "at '/koordinator/priorityClasses'",
	} {
		t.Run(set, func(t *testing.T) {
			_, err := helm(t, "template", "polder", chart, "--kube-version", "1.36.0", "--set", set)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("helm returns %v, want %s", err, want)
			}
		})
	}
}

// helm upgrade --reuse-values keeps the values of the chart that was installed: those of chart 0.1.0 lack the network's. It is off then,
// and switching it on says what to do.
func TestValuesOfTheFirstChartAreEnough(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"form=containers", "form=single", "restore=true", "centre.enabled=true", "metrics.enabled=true,metrics.podMonitor.enabled=true",
	} {
		if template(t, set, "network=null,metrics.ports.network=null,centre.hostNetwork=null") != template(t, set) {
			t.Errorf("%s: the values of chart 0.1.0 render something else", set)
		}
	}
	const old = "network.resources=null,network.batchRate=null,metrics.ports.network=null"
	_, err := helm(t, "template", "polder", chart, "--kube-version", "1.36.0", "--set", old, "--set",
		"network.enabled=true,network.rate=1Gbit")
	if err == nil || !strings.Contains(err.Error(), "use --reset-then-reuse-values in its place") {
		t.Errorf("helm returns %v", err)
	}
}

// A number that YAML reads as a float is rendered as it was written.
func TestFlagsAreSettings(t *testing.T) {
	t.Parallel()
	out := template(t, "collect.flags.max-line=16777216", "advise.flags.reserve-cpu=2.5", "isolate.flags.force=true",
		"evict.flags.rules={MemoryEvict,CPUEvict}", "centre.enabled=true", "centre.evict.flags.opt-out={a/b=c,d}",
		"centre.evict.flags.nodes-per-minute=16777216")
	for _, want := range []string{
		`{name: POLDER_COLLECT_MAX_LINE, value: "16777216"}`, `{name: POLDER_ADVISE_RESERVE_CPU, value: "2.5"}`, `{name: POLDER_ISOLATE_FORCE, value: "true"}`,
		`{name: POLDER_EVICT_RULES, value: "MemoryEvict,CPUEvict"}`,
		`{name: POLDER_EVICT_FLEET_OPT_OUT, value: "a/b=c,d"}`, `{name: POLDER_EVICT_FLEET_NODES_PER_MINUTE, value: "16777216"}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the chart lacks %s", want)
		}
	}
}

// The second isolate stands between the first one and evict; advise needs resource values for it to act on.
func TestNetworkIsInThePipe(t *testing.T) {
	t.Parallel()
	if out := template(t); strings.Contains(out, "isolate-network") || strings.Contains(out, "NET_ADMIN") || strings.Contains(out, "BATCH_NETWORK_RATE") {
		t.Error("the links are shaped by default")
	}
	for set, want := range map[string][]string{
		"network.rate=1Gbit": {
			`{name: POLDER_ADVISE_BATCH_NETWORK_RATE, value: "10%"}`, `{name: POLDER_ADVISE_NETWORK_RATE, value: "1Gbit"}`,
			"- fifo:/run/polder/3/ticks.fifo\n  - --output\n  - fifo:/run/polder/5/ticks.fifo", "- /usr/local/bin/evict\n  - --input\n  - fifo:/run/polder/5/ticks.fifo",
			`"90", /run/polder/4/evict, /run/polder/5/isolate-network]`,
		},
		"hostNetwork=true,network.batchRate=100Mbit": {`{name: POLDER_ADVISE_BATCH_NETWORK_RATE, value: "100Mbit"}`},
		"network.rate=1Gbit,metrics.enabled=true":    {`{name: POLDER_ISOLATE_METRICS_ADDR, value: ":9476"}`, "name: network-metrics, containerPort: 9476"},
	} {
		out := template(t, "network.enabled=true", set)
		out = regexp.MustCompile(`\n +- `).ReplaceAllString(out, "\n  - ")
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: the chart lacks %q", set, text)
			}
		}
	}
}

// By default the chart changes nothing. One value enables all of it.
func TestFirstInstallIsADryRun(t *testing.T) {
	t.Parallel()
	writers := map[string]int{"ISOLATE": 1, "EVICT": 1, "REPORT": 1}
	for set, want := range map[string]map[string]int{
		"":                                 writers,
		"form=single":                      writers,
		"policy=koordinator":               writers,
		"report.taintNode=true":            writers,
		"centre.enabled=true":              {"ISOLATE": 1, "EVICT": 1, "REPORT": 1, "EVICT_FLEET": 1, "REPORT_FLEET": 1},
		"dryRun=false":                     {},
		"dryRun=false,form=single":         {},
		"dryRun=false,centre.enabled=true": {},
		"dryRun=false,centre.enabled=true,centre.dryRun=true": {"EVICT_FLEET": 1, "REPORT_FLEET": 1},
		"restore=true": {}, // restoring is never a dry run
	} {
		out := template(t, set)
		for _, tool := range []string{"ISOLATE", "EVICT", "REPORT", "EVICT_FLEET", "REPORT_FLEET"} {
			if got := strings.Count(out, `{name: POLDER_`+tool+`_DRY_RUN, value: "true"}`); got != want[tool] {
				t.Errorf("%q: %d containers have %s in dry run; want %d", set, got, strings.ToLower(tool), want[tool])
			}
		}
		dry := want["ISOLATE"] > 0
		if strings.Contains(out, `{name: POLDER_REPORT_TO, value: "table"}`) != dry || dry && strings.Contains(out, "TAINT_NODE") {
			t.Errorf("%q: report must write only the table in a dry run, and more otherwise", set)
		}
	}
}

// confined is what each container may access; the test fails for any container that is not listed here.
var confined = map[string]struct {
	user, group int
	token       string // the service account whose token it has, without the release's name
	cgroups     string // "", "read" or "write"
	kubelet     string // access to kubelet's directory: "", "file" or "copy" (of the file)
	fifos       string // the numbers of the FIFOs that it can open
	state       string // its state directory on the host
	added       string // its capabilities
}{
	"prepare":       {0, 65532, "", "", "", "1 2 3 4", "/var/lib/polder", ""},
	"kubelet-state": {0, 0, "", "", "file", "", "", ""},
	"collect":       {65521, 65532, "-collect", "read", "copy", "1", "/var/lib/polder/collect", ""},
	"advise":        {65522, 65532, "", "", "", "1 2", "/var/lib/polder/advise", ""},
	"isolate":       {0, 0, "", "write", "copy", "2 3", "/var/lib/polder", ""},
	"evict":         {65524, 65532, "-evict", "", "", "3 4", "/var/lib/polder/evict", ""},
	"report":        {65525, 65532, "-report", "", "", "4", "", ""},
	// network.enabled
	"isolate-network": {0, 0, "", "read", "", "3 5", "/var/lib/polder/network", "NET_ADMIN"},
	"restore-network": {0, 0, "", "", "", "", "/var/lib/polder/network", "NET_ADMIN"},
	// form=single
	"polder": {0, 0, "", "write", "copy", "", "/var/lib/polder", ""},
	// restore
	"withdraw": {65532, 65532, "-report", "", "", "", "", ""},
	"restore":  {0, 0, "", "write", "copy", "", "/var/lib/polder", ""},
	"done":     {65532, 65532, "", "", "", "", "", ""},
}

func TestContainersHaveWhatTheyNeedAndNoMore(t *testing.T) {
	c := cluster(t)
	for set, want := range map[string]string{
		"form=containers": "polder-collect: prepare kubelet-state collect, polder-evict: prepare evict, polder-isolate: prepare kubelet-state advise isolate, polder-report: prepare report",
		"form=single":     "polder: kubelet-state polder",
		"restore=true":    "polder-isolate: kubelet-state restore done, polder-report: withdraw done",
		"network.enabled=true,network.rate=1Gbit": "polder-collect: prepare kubelet-state collect, polder-evict: prepare evict, " +
			"polder-isolate: prepare kubelet-state advise isolate, polder-network: prepare isolate-network, polder-report: prepare report",
		"network.enabled=true,network.rate=1Gbit,restore=true": "polder-isolate: kubelet-state restore done, " +
			"polder-network: restore-network done, polder-report: withdraw done",
	} {
		t.Run(set, func(t *testing.T) {
			network := strings.HasPrefix(set, "network")
			var got []string
			for name, pod := range daemonSets(t, c, strings.Split(set, ",")...) {
				var names []string
				for _, one := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
					names = append(names, one.Name)
					pod.check(t, name, one, network)
				}
				got = append(got, name+": "+strings.Join(names, " "))
				if pod.Spec.SecurityContext.SeccompProfile.Type != "RuntimeDefault" || pod.Spec.AutomountServiceAccountToken || pod.Spec.PriorityClassName != "system-node-critical" {
					t.Errorf("the pod of %s is %+v", name, pod.Spec)
				}
				// Only these pods must see other pods' threads, or the network namespaces of their processes.
				if pod.Spec.HostPID != (name == "polder-collect" || name == "polder" || name == "polder-network" && !strings.Contains(set, "restore")) {
					t.Errorf("%s: hostPID %t", name, pod.Spec.HostPID)
				}
				if pod.Spec.HostNetwork != (name == "polder-network" && network) {
					t.Errorf("%s: hostNetwork %t", name, pod.Spec.HostNetwork)
				}
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("there are\n%s\nwant\n%s", got, want)
			}
		})
	}
	// isolate moves threads of other pods to resctrl groups.
	for name, pod := range daemonSets(t, c, "host.resctrl=true") {
		if want := name == "polder-collect" || name == "polder-isolate"; pod.Spec.HostPID != want {
			t.Errorf("with resctrl %s has hostPID %t", name, pod.Spec.HostPID)
		}
	}
}

// check compares a container of the DaemonSet of this name with its entry in confined.
func (p *podTemplate) check(t *testing.T, name string, one container, network bool) {
	t.Helper()
	want, known := confined[one.Name]
	if network && one.Name == "evict" {
		want.fifos = "5 4"
	}
	if !known {
		t.Errorf("container %s is not in confined", one.Name)
	}
	s := one.SecurityContext
	if s.Privileged || s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%s: %+v", one.Name, s)
	}
	if s.RunAsNonRoot != (s.RunAsUser != 0) {
		t.Errorf("%s runs as user %d, and runAsNonRoot is %t", one.Name, s.RunAsUser, s.RunAsNonRoot)
	}
	// Even where every run ends like that, report lives longer than its --stale-after, and withdraws the offer.
	if delay := one.LivenessProbe.InitialDelaySeconds; (one.Name == "report" || one.Name == "polder") && delay < 300 {
		t.Errorf("%s may be killed after %d seconds, before report withdraws a stale offer", one.Name, delay)
	}
	got := confined[""]
	got.user, got.group, got.added = s.RunAsUser, s.RunAsGroup, strings.Join(s.Capabilities.Add, " ")
	hosts := map[string]string{} // the paths of the host by volume
	for _, v := range p.Spec.Volumes {
		hosts[v.Name] = v.HostPath.Path
	}
	var fifos []string
	for _, m := range one.VolumeMounts {
		path, ofRun := strings.CutPrefix(hosts[m.Name], "/run/polder-pods")
		switch {
		case m.Name == "api":
			if got.token = strings.TrimPrefix(p.Spec.ServiceAccountName, "polder"); p.Spec.ServiceAccountName == "" {
				t.Errorf("%s has a token of an account that is not Polder's", one.Name)
			}
		case hosts[m.Name] == "/sys/fs/cgroup":
			if got.cgroups = "write"; m.ReadOnly && m.RecursiveReadOnly == "IfPossible" {
				got.cgroups = "read"
			}
		case hosts[m.Name] == "/var/lib/kubelet/cpu_manager_state" && m.ReadOnly:
			got.kubelet = "file"
		case m.Name == "kubelet-copy":
			if got.kubelet == "" {
				got.kubelet = "copy"
			}
			if m.ReadOnly != (one.Name != "kubelet-state") {
				t.Errorf("%s mounts the copy of kubelet's file with readOnly %t", one.Name, m.ReadOnly)
			}
		case ofRun && path == "":
			fifos = []string{"1", "2", "3", "4"}
		case ofRun:
			fifos = append(fifos, strings.TrimPrefix(path, "/"))
		case strings.HasPrefix(hosts[m.Name], "/var/lib/polder"):
			got.state = hosts[m.Name]
		case hosts[m.Name] != "":
			t.Errorf("%s mounts %s of the host, which confined does not list", one.Name, hosts[m.Name])
		}
	}
	got.fifos = strings.Join(fifos, " ")
	if got != want {
		t.Errorf("%s: %s has %+v, want %+v", name, one.Name, got, want)
	}
}

// Each account has the role of its tool and no other; tools that need no permission have none.
func TestEachToolHasAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	subjects := regexp.MustCompile(`(?m)^- \{kind: ServiceAccount, name: ([^,]+), namespace: polder-system\}`)
	role := regexp.MustCompile(`(?m)^roleRef: .*name: ([^}]+)\}`)
	for set, want := range map[string]string{
		"form=containers": "collect: polder-collect, evict: polder-evict, report: polder-report",
		"form=single":     "collect: polder, evict: polder, report: polder",
		"form=single,serviceAccount.perTool=true": "collect: polder polder-collect, evict: polder polder-evict, report: polder polder-report",
	} {
		var got []string
		accounts := map[string]bool{}
		out := template(t, set)
		for document := range strings.SplitSeq(out, "\n---\n") {
			switch {
			case strings.Contains(document, "\nkind: ClusterRoleBinding\n"):
				var names []string
				for _, m := range subjects.FindAllStringSubmatch(document, -1) {
					names = append(names, m[1])
					accounts[m[1]] = true
				}
				got = append(got, strings.TrimPrefix(role.FindStringSubmatch(document)[1], "polder-")+": "+strings.Join(names, " "))
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: the roles are bound to %s, want %s", set, got, want)
		}
		if n := strings.Count(out, "\nkind: ServiceAccount\n"); n != len(accounts) {
			t.Errorf("%s: there are %d accounts, %v have a role", set, n, accounts)
		}
	}
}

// Kubelet's directory is mounted where a value asks for it, and nowhere else.
func TestKubeletsStateIsASetting(t *testing.T) {
	t.Parallel()
	const file, directory = "hostPath: {path: /var/lib/kubelet/cpu_manager_state, type: File}", "hostPath: {path: /var/lib/kubelet, type: Directory}"
	user := regexp.MustCompile(`(?s)\n      - name: collect\n.*?runAsUser: (\d+)`)
	for set, want := range map[string]struct {
		files, directories int
		root               string
	}{
		"host.kubeletState=file":                  {2, 0, "/run/kubelet"},
		"host.kubeletState=true":                  {2, 0, "/run/kubelet"},
		"host.kubeletState=directory":             {0, 2, "/var/lib/kubelet"},
		"host.kubeletState=none":                  {0, 0, "/var/lib/kubelet"},
		"host.kubeletState=false":                 {0, 0, "/var/lib/kubelet"},
		"host.kubeletState=file,form=single":      {1, 0, "/run/kubelet"},
		"host.kubeletState=directory,form=single": {0, 1, "/var/lib/kubelet"},
		// A restore puts no exclusive CPUs into a list, either.
		"host.kubeletState=file,restore=true":                  {1, 0, "/run/kubelet"},
		"host.kubeletState=directory,restore=true":             {0, 1, "/var/lib/kubelet"},
		"host.kubeletState=none,restore=true":                  {0, 0, "/var/lib/kubelet"},
		"host.kubeletState=file,form=single,restore=true":      {1, 0, "/run/kubelet"},
		"host.kubeletState=directory,form=single,restore=true": {0, 1, "/var/lib/kubelet"},
	} {
		out := template(t, set)
		if files, directories := strings.Count(out, file), strings.Count(out, directory); files != want.files || directories != want.directories {
			t.Errorf("%s: the file is mounted into %d pods and the directory into %d; want %d and %d", set, files, directories, want.files, want.directories)
		}
		// Kubelet's own file is readable by root only, and its copy by everybody.
		if m := user.FindStringSubmatch(out); m != nil && (m[1] == "0") != (want.directories > 0) {
			t.Errorf("%s: collect is user %s", set, m[1])
		}
		tools := []string{"COLLECT", "ISOLATE"}
		if strings.Contains(set, "restore") {
			tools = []string{"ISOLATE"}
		}
		for _, tool := range tools {
			if !strings.Contains(out, `{name: POLDER_`+tool+`_KUBELET_ROOT, value: "`+want.root+`"}`) {
				t.Errorf("%s: %s does not read it in %s", set, tool, want.root)
			}
		}
	}
}

type podTemplate struct {
	Spec struct {
		AutomountServiceAccountToken, HostPID, HostNetwork bool
		PriorityClassName, ServiceAccountName              string
		SecurityContext                                    struct{ SeccompProfile struct{ Type string } }
		InitContainers, Containers                         []container
		Volumes                                            []struct {
			Name     string
			HostPath struct{ Path string }
		}
	}
}

type container struct {
	Name            string
	Command         []string
	SecurityContext struct {
		Privileged, AllowPrivilegeEscalation, ReadOnlyRootFilesystem, RunAsNonRoot bool
		RunAsUser, RunAsGroup                                                      int
		Capabilities                                                               struct{ Add, Drop []string }
	}
	VolumeMounts []struct {
		Name, MountPath, RecursiveReadOnly string
		ReadOnly                           bool
	}
	LivenessProbe struct{ InitialDelaySeconds int }
}

// daemonSets are the pod templates of the chart's DaemonSets, by their names, as the server understands them.
func daemonSets(t *testing.T, c *controlplane.ControlPlane, set ...string) map[string]*podTemplate {
	t.Helper()
	templates := map[string]*podTemplate{}
	release := strings.NewReplacer("=", "-").Replace(strings.Join(set, "-"))
	for document := range strings.SplitSeq(template(t, set...), "\n---\n") {
		name := daemonSetName.FindStringSubmatch(document)
		if name == nil {
			continue
		}
		own := strings.Replace(name[1], "polder", strings.ToLower(release), 1)
		c.Apply(strings.Replace(document, "\n  name: "+name[1]+"\n", "\n  name: "+own+"\n", 1))
		var object struct {
			Spec struct{ Template podTemplate }
		}
		c.Get("/apis/apps/v1/namespaces/"+namespace+"/daemonsets/"+own, &object)
		templates[name[1]] = &object.Spec.Template
	}
	if len(templates) == 0 {
		t.Fatal("the chart renders no DaemonSet")
	}
	return templates
}

var daemonSetName = regexp.MustCompile(`(?m)^kind: DaemonSet\nmetadata:\n  name: (.+)$`)

// part is the output of one of the chart's templates.
func part(t *testing.T, file string, set ...string) string {
	t.Helper()
	var kept []string
	for document := range strings.SplitSeq(template(t, set...), "\n---\n") {
		if strings.Contains(document, "# Source: polder/templates/"+file) {
			kept = append(kept, strings.TrimPrefix(document, "---\n"))
		}
	}
	return strings.Join(kept, "\n---\n")
}

// The manifests for users without helm are rendered from the chart.
func TestManifestsAreTheCharts(t *testing.T) {
	head := "# Made from deploy/helm/polder (go test ./tests/cluster/deploy -run Manifests -update): change it there.\n"
	own := "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + namespace + "\n  labels: {pod-security.kubernetes.io/enforce: privileged} # the host's cgroups and process ids\n"
	for path, render := range map[string]func() string{
		"polder.yaml": func() string {
			return own + template(t)
		},
		"scheduler/deployment.yaml": func() string { return "---\n" + part(t, "scheduler.yaml", "scheduler.enabled=true") },
		"centre.yaml":               func() string { return "---\n" + part(t, "centre.yaml", "centre.enabled=true") },
		"koordinator/polder.yaml": func() string {
			return own + template(t, "policy=koordinator")
		},
		"koordinator/slo-controller-config.yaml": func() string {
			return "---\n" + part(t, "koordinator-config.yaml", "policy=koordinator", "koordinator.sloConfig.create=true")
		},
		"koordinator/scheduler.yaml": func() string {
			return "---\n" + part(t, "scheduler.yaml", "policy=koordinator", "scheduler.enabled=true")
		},
		"koordinator/priorityclasses.yaml": func() string {
			return "---\n" + part(t, "koordinator-priorities.yaml", "koordinator.priorityClasses=true")
		},
		"koordinator/profiles.yaml": func() string {
			return "---\n" + part(t, "koordinator-profiles.yaml", "koordinator.profiles.enabled=true") + "\n---\n" + part(t, "koordinator-pods.yaml", "koordinator.profiles.enabled=true")
		},
	} {
		want := head + strings.TrimRight(render(), "\n") + "\n"
		path = filepath.Join(manifests, path)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(t, path); got != want {
			t.Errorf("%s is not what the chart renders: run the test with -update", path)
		}
	}
	// The definitions and the profile are the chart's own files.
	for _, path := range []string{"crds/*.yaml", "scheduler/*-scheduler.yaml"} {
		files, err := filepath.Glob(filepath.Join(manifests, path))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", path, err)
		}
		for _, file := range files {
			if info, err := os.Lstat(file); err != nil || info.Mode().Type() != fs.ModeSymlink {
				t.Errorf("%s is not a link into the chart (%v)", file, err)
			}
		}
	}
}

var copied = regexp.MustCompile(`(?m)^COPY (.+) \S+$`)

// docker is not available here, so the test checks that every path that is copied exists and is not ignored.
func TestDockerfile(t *testing.T) {
	dockerfile, ignore := read(t, top+"/deploy/Dockerfile"), read(t, top+"/deploy/Dockerfile.dockerignore")
	n := 0
	for _, m := range copied.FindAllStringSubmatch(dockerfile, -1) {
		if strings.HasPrefix(m[1], "--from=") {
			continue
		}
		for source := range strings.FieldsSeq(m[1]) {
			n++
			if _, err := os.Stat(filepath.Join(top, source)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is copied and does not exist", source)
			}
			if !strings.Contains(ignore, "\n!"+source+"\n") {
				t.Errorf("%s is copied and ignored", source)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d paths are copied", n)
	}
}

// What helm does on a cluster, one test after the other: each uninstalls what it has installed.
func TestHelm(t *testing.T) {
	t.Parallel()
	controlplane.Need(t, "helm", "kube-controller-manager")
	c := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	t.Run("install", func(t *testing.T) { install(t, c.Plane.For(t)) })
	t.Run("centre", func(t *testing.T) { controllerEndsBeforeItsMarksAreRemoved(t, c.Plane.For(t)) })
}

// helmOn runs helm on a cluster.
func helmOn(t *testing.T, c *controlplane.ControlPlane, args ...string) (string, error) {
	t.Helper()
	cmd := c.KubectlCommand(t.Context(), args...)
	cmd.Path, cmd.Args[0] = filepath.Join(controlplane.Need(t, "helm"), "helm"), "helm"
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// helm installs it, changes its form and removes it, on a cluster whose controllers make its pods.
func install(t *testing.T, c *controlplane.ControlPlane) {
	run := func(args ...string) string {
		t.Helper()
		out, err := helmOn(t, c, args...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	c.MakeNode("node-1", "48", "195924424Ki")
	notes := run("install", "polder", chart, "--namespace", namespace, "--create-namespace")
	show := func(notes string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(notes, want) {
				t.Errorf("the notes do not contain %q:\n%s", want, notes)
			}
		}
	}
	show(notes, "Polder runs on every node as four pods, with one container per tool, and changes nothing (dryRun)", "schedulerName: katalyst-scheduler wait",
		"offer unused resources to batch work", "kubectl -n polder-system logs daemonset/polder-report --tail=20",
		"helm upgrade polder CHART -n polder-system --reuse-values --set dryRun=false")
	pods := func() string {
		all := strings.Split(strings.TrimSpace(c.Kubectl("-n", namespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.spec.serviceAccountName}={.spec.containers[*].name},{.spec.priority}{"\n"}{end}`)), "\n")
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	const apart = "default=advise isolate,2000001000 polder-collect=collect,2000001000 polder-evict=evict,2000001000 polder-report=report,2000001000"
	c.Eventually(soon, "the DaemonSets' pods", func() string {
		if got := pods(); got != apart {
			return "there are " + got
		}
		return ""
	})
	c.Established()
	c.Kubectl("get", "kcnr,kcc,aqc,ec", "--all-namespaces")
	checked(t, c, "polder-own-node", "polder-own-resources", "polder-own-evictions", "polder-own-events", "polder-own-event-pods")
	if notes := run("upgrade", "polder", chart, "--namespace", namespace, "--reuse-values", "--set", "dryRun=false"); !strings.Contains(notes, "kubectl get kcnr") || strings.Contains(notes, "dryRun") {
		t.Errorf("the notes of a release that acts are\n%s", notes)
	}
	show(run("upgrade", "polder", chart, "--namespace", namespace, "--set", "form=single"), "If this release was active until now")
	c.Eventually(soon, "the other form", func() string {
		got := pods()
		if got == "polder=polder,2000001000" {
			return ""
		}
		// No kubelet runs the pods, so the test deletes them. The next look, not this one, finds those that the controller makes then.
		_, _ = c.TryKubectl("", "-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
		return "there was " + got
	})
	if notes := run("upgrade", "polder", chart, "--namespace", namespace, "--set", "restore=true"); !strings.Contains(notes, "helm uninstall polder -n polder-system") {
		t.Errorf("the notes of restore do not contain the next step:\n%s", notes)
	}
	run("uninstall", "polder", "--namespace", namespace)
	installKoordinator(t, c, run)
	if left := c.Kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name", "-l", "app.kubernetes.io/name=polder"); left != "" {
		t.Errorf("uninstalling leaves %s", left)
	}
	if crds := c.Kubectl("get", "crd", "-o", "name", "-l", "app.kubernetes.io/part-of=polder"); strings.Count(crds, "\n") != 5 {
		t.Errorf("uninstalling leaves the definitions %s, want all six: their objects belong to the user", crds)
	}
}
