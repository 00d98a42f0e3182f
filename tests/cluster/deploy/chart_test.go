package deploy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
)

func TestLint(t *testing.T) {
	if out, err := helm(t, "lint", chart, "--strict", "--kube-version", "1.36.0"); err != nil {
		t.Error(out, err)
	}
}

// Both forms, with all that can be switched on, are what the server takes.
func TestChartIsTakenByTheServer(t *testing.T) {
	c := cluster(t)
	for name, set := range map[string][]string{
		"single":     {"form=single"},
		"containers": {"form=containers"},
		"dry run":    {"form=containers", "dryRun=true"},
		"restore":    {"restore=true", "centre.enabled=true"},
		"centre":     {"centre.enabled=true", "centre.action=delete", "centre.dryRun=true", "centre.evict.flags.taint-after=5m", "podLabels.team=x"},
		"everything": {
			"form=containers", "scheduler.enabled=true", "serviceAccount.perTool=true", "hostNetwork=true", "host.kubeletState=false",
			"host.seLinuxOptions.type=spc_t", "image.pullSecrets[0].name=registry", "podLabels.team=x", "podAnnotations.note=y",
			"metrics.enabled=true", "metrics.dashboard.enabled=true", "collect.flags.interval=2s", "advise.flags.reserve-cpu=2", "evict.action=delete", "report.to={cnr,table}",
		},
		"koordinator": {
			"policy=koordinator", "form=containers", "host.resctrl=true", "scheduler.enabled=true", "serviceAccount.perTool=true", "centre.enabled=true",
			"koordinator.sloConfig.create=true", "koordinator.priorityClasses=true", "koordinator.profiles.enabled=true", "koordinator.profiles.rounds=3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.TryKubectl(template(t, set...), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(out, "serverside-applied (server dry run)"); n < 11 {
				t.Errorf("%d objects were taken:\n%s", n, out)
			}
		})
	}
	// Before 1.30 there are no such policies, and the chart does without.
	old, err := helm(t, "template", "polder", chart, "--kube-version", "1.29.0")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(old, "ValidatingAdmissionPolicy") || strings.Contains(old, "recursiveReadOnly") || !strings.Contains(old, "kind: DaemonSet") {
		t.Error("for 1.29 the chart has what 1.29 does not know")
	}
	if _, err := helm(t, "template", "polder", chart, "--kube-version", "1.28.0"); err == nil {
		t.Error("the chart takes 1.28")
	}
	if _, err := helm(t, "template", "polder", chart, "--kube-version", "1.35.0", "--set", "koordinator.profiles.enabled=true"); err == nil || !strings.Contains(err.Error(), "needs MutatingAdmissionPolicy, of Kubernetes 1.36 and later; this is v1.35.0") {
		t.Errorf("for 1.35 the chart says %v", err)
	}
}

func TestValuesThatAreNoGoodAreRefused(t *testing.T) {
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
		"policy=both":                    "at '/policy': value must be one of 'katalyst', 'koordinator'",
		"advise.flags.policy=katalyst":   "at '/advise/flags/policy'",
		"collect.flags.slo-config=a/b":   "at '/collect/flags/slo-config'",

		"koordinator.profiles.rounds=1":            "at '/koordinator/profiles/rounds': minimum: got 1, want 2",
		"koordinator.profiles.failurePolicy=Maybe": "at '/koordinator/profiles/failurePolicy'",
		"koordinator.sloConfig.name=Slo":           "at '/koordinator/sloConfig/name'",
		"koordinator.sloConfig.data.colocation=1":  "at '/koordinator/sloConfig/data/colocation'",
		"koordinator.priorityClasses=some":         "at '/koordinator/priorityClasses'",
	} {
		t.Run(set, func(t *testing.T) {
			_, err := helm(t, "template", "polder", chart, "--kube-version", "1.36.0", "--set", set)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("helm says %v, want %s", err, want)
			}
		})
	}
}

// A number that YAML reads as a float is the number that was written.
func TestFlagsAreSettings(t *testing.T) {
	out := template(t, "collect.flags.max-line=16777216", "advise.flags.reserve-cpu=2.5", "isolate.flags.force=true", "dryRun=true")
	for _, want := range []string{
		`{name: POLDER_COLLECT_MAX_LINE, value: "16777216"}`, `{name: POLDER_ADVISE_RESERVE_CPU, value: "2.5"}`, `{name: POLDER_ISOLATE_FORCE, value: "true"}`,
		`{name: POLDER_ISOLATE_DRY_RUN, value: "true"}`, `{name: POLDER_EVICT_DRY_RUN, value: "true"}`, `{name: POLDER_REPORT_DRY_RUN, value: "true"}`,
		`{name: POLDER_REPORT_TO, value: "table"}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the DaemonSet lacks %s", want)
		}
	}
}

// confined is what each container may have; the test fails with any container that is not here.
var confined = map[string]struct {
	root          bool
	token         bool
	cgroups       string // "", "read" or "write"
	kubelet, host bool   // host: the directory of isolate's journal
}{
	"polder":  {true, true, "write", true, true},
	"collect": {true, true, "read", true, false},
	"advise":  {},
	"isolate": {true, false, "write", true, true},
	"evict":   {token: true},
	"report":  {token: true},
	"fifos":   {},
	// restore
	"withdraw": {token: true},
	"restore":  {true, false, "write", false, true},
	"done":     {},
}

func TestContainersHaveWhatTheyNeedAndNoMore(t *testing.T) {
	c := cluster(t)
	for _, set := range []string{"form=single", "form=containers", "restore=true"} {
		t.Run(set, func(t *testing.T) {
			var pod podTemplate
			daemonSet(t, c, &pod, set)
			if pod.Spec.SecurityContext.SeccompProfile.Type != "RuntimeDefault" || pod.Spec.AutomountServiceAccountToken || pod.Spec.PriorityClassName != "system-node-critical" {
				t.Errorf("the pod is %+v", pod.Spec)
			}
			containers := append(pod.Spec.InitContainers, pod.Spec.Containers...)
			if want := map[string]int{"form=single": 1, "form=containers": 6, "restore=true": 3}[set]; len(containers) != want {
				t.Errorf("there are %d containers, want %d", len(containers), want)
			}
			pipes := map[string][]string{}
			for _, one := range containers {
				want, known := confined[one.Name]
				if !known {
					t.Errorf("nobody has said what container %s may have", one.Name)
				}
				s := one.SecurityContext
				if s.Privileged || s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
					t.Errorf("%s: %+v", one.Name, s)
				}
				if (s.RunAsUser == 0) != want.root || s.RunAsNonRoot == want.root {
					t.Errorf("%s runs as user %d", one.Name, s.RunAsUser)
				}
				got := confined[""]
				got.root = s.RunAsUser == 0
				for _, m := range one.VolumeMounts {
					switch m.Name {
					case "api":
						got.token = true
					case "cgroups":
						if got.cgroups = "write"; m.ReadOnly && m.RecursiveReadOnly == "IfPossible" {
							got.cgroups = "read"
						}
					case "kubelet":
						got.kubelet = true
						if !m.ReadOnly {
							t.Errorf("%s may write kubelet's directory", one.Name)
						}
					case "state":
						got.host = true
					}
					if strings.HasPrefix(m.Name, "pipe-") && one.Name != "fifos" {
						pipes[m.Name] = append(pipes[m.Name], one.Name)
					}
				}
				if got != want {
					t.Errorf("%s has %+v, want %+v", one.Name, got, want)
				}
			}
			// Nobody but the tools at its two ends reaches a FIFO.
			if set == "form=containers" {
				for name, want := range map[string]string{"pipe-1": "collect advise", "pipe-2": "advise isolate", "pipe-3": "isolate evict", "pipe-4": "evict report"} {
					if got := strings.Join(pipes[name], " "); got != want {
						t.Errorf("%s is mounted by %s, want %s", name, got, want)
					}
				}
			}
		})
	}
}

type podTemplate struct {
	Spec struct {
		AutomountServiceAccountToken bool
		PriorityClassName            string
		SecurityContext              struct{ SeccompProfile struct{ Type string } }
		InitContainers, Containers   []container
	}
}

type container struct {
	Name            string
	Command         []string
	SecurityContext struct {
		Privileged, AllowPrivilegeEscalation, ReadOnlyRootFilesystem, RunAsNonRoot bool
		RunAsUser                                                                  int
		Capabilities                                                               struct{ Add, Drop []string }
	}
	VolumeMounts []struct {
		Name, MountPath, RecursiveReadOnly string
		ReadOnly                           bool
	}
}

// daemonSet is the pod template as the server understands it.
func daemonSet(t *testing.T, c *controlplane.ControlPlane, into *podTemplate, set ...string) {
	t.Helper()
	for document := range strings.SplitSeq(template(t, set...), "\n---\n") {
		if !strings.Contains(document, "kind: DaemonSet") {
			continue
		}
		name := strings.NewReplacer("=", "-").Replace(strings.Join(set, "-"))
		c.Apply(strings.Replace(document, "\n  name: polder\n", "\n  name: "+name+"\n", 1))
		var object struct {
			Spec struct{ Template podTemplate }
		}
		c.Get("/apis/apps/v1/namespaces/"+namespace+"/daemonsets/"+name, &object)
		*into = object.Spec.Template
		return
	}
	t.Fatal("the chart renders no DaemonSet")
}

// part is what one of the chart's templates renders.
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

// The manifests for those without helm are the chart's.
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
				t.Errorf("%s is no link into the chart (%v)", file, err)
			}
		}
	}
}

var copied = regexp.MustCompile(`(?m)^COPY (.+) \S+$`)

// docker cannot be had here: what is looked at is that everything that is copied exists and is not ignored.
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

// helm installs it, changes its form and removes it, on a cluster whose controllers make its pods.
func TestInstall(t *testing.T) {
	dir := controlplane.Need(t, "helm", "kube-controller-manager")
	c := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	run := func(args ...string) string {
		t.Helper()
		cmd := c.KubectlCommand(t.Context(), args...)
		cmd.Path, cmd.Args[0] = filepath.Join(dir, "helm"), "helm"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	c.MakeNode("node-1", "48", "195924424Ki")
	notes := run("install", "polder", chart, "--namespace", namespace, "--create-namespace")
	for _, want := range []string{"Polder runs on every node as one container", "kubectl get kcnr", "schedulerName: katalyst-scheduler wait"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	pods := func() string {
		return c.Kubectl("-n", namespace, "get", "pods", "-o", `jsonpath={range .items[*]}{.spec.containers[*].name} of {.spec.priority}{end}`)
	}
	c.Eventually(soon, "the DaemonSet's pod", func() string {
		if got := pods(); got != "polder of 2000001000" {
			return "there is " + got
		}
		return ""
	})
	c.Kubectl("get", "kcnr,kcc,aqc,ec", "--all-namespaces")
	checked(t, c, "polder-own-node", "polder-own-resources")
	run("upgrade", "polder", chart, "--namespace", namespace, "--set", "form=containers")
	c.Eventually(soon, "the other form", func() string {
		// Nobody runs the pods, so nobody ends them.
		_, _ = c.TryKubectl("", "-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
		if got := pods(); got != "collect advise isolate evict report of 2000001000" {
			time.Sleep(time.Second)
			return "there is " + got
		}
		return ""
	})
	if notes := run("upgrade", "polder", chart, "--namespace", namespace, "--set", "restore=true"); !strings.Contains(notes, "helm uninstall polder -n polder-system") {
		t.Errorf("the notes of restore do not say how to go on:\n%s", notes)
	}
	run("uninstall", "polder", "--namespace", namespace)
	installKoordinator(t, c, run)
	if left := c.Kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name", "-l", "app.kubernetes.io/name=polder"); left != "" {
		t.Errorf("uninstalling leaves %s", left)
	}
	if crds := c.Kubectl("get", "crd", "-o", "name", "-l", "app.kubernetes.io/part-of=polder"); strings.Count(crds, "\n") != 5 {
		t.Errorf("uninstalling leaves the definitions %s, want all six: their objects are the user's", crds)
	}
}
