package profiles

import (
	"fmt"
	"strings"
	"testing"
)

func TestSelectors(t *testing.T) {
	c := cluster(t)
	const matched = `"labels":{"got":"it"}`
	for name, one := range map[string]struct {
		spec string
		want map[string]bool // by the pod's labels
	}{
		"none":           {`{` + matched + `}`, map[string]bool{`{}`: true, `{"a":"1"}`: true}},
		"empty":          {`{"selector":{},` + matched + `}`, map[string]bool{`{}`: true}},
		"labels":         {`{"selector":{"matchLabels":{"a":"1","b":""}},` + matched + `}`, map[string]bool{`{}`: false, `{"a":"1"}`: false, `{"a":"1","b":""}`: true, `{"a":"2","b":""}`: false, `{"a":"1","b":"","c":"3"}`: true}},
		"in":             {`{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]},` + matched + `}`, map[string]bool{`{}`: false, `{"a":"1"}`: true, `{"a":"2"}`: true, `{"a":"3"}`: false}},
		"not-in":         {`{"selector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1","2"]}]},` + matched + `}`, map[string]bool{`{}`: true, `{"a":"1"}`: false, `{"a":"3"}`: true}},
		"exists":         {`{"selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]},` + matched + `}`, map[string]bool{`{}`: false, `{"a":""}`: true}},
		"does-not-exist": {`{"selector":{"matchExpressions":[{"key":"example.com/a","operator":"DoesNotExist"}]},` + matched + `}`, map[string]bool{`{}`: true, `{"example.com/a":""}`: false}},
		"all-of-them": {
			`{"selector":{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"Exists"},{"key":"c","operator":"NotIn","values":["x"]}]},` + matched + `}`,
			map[string]bool{`{"a":"1","b":"2"}`: true, `{"a":"1"}`: false, `{"b":"2"}`: false, `{"a":"1","b":"2","c":"x"}`: false},
		},
		"other-namespace": {`{"namespaceSelector":{"matchLabels":{"test":"selectors-elsewhere"}},` + matched + `}`, map[string]bool{`{}`: false}},
		"namespace-in":    {`{"namespaceSelector":{"matchExpressions":[{"key":"test","operator":"In","values":["x","selectors-namespace-in"]}]},` + matched + `}`, map[string]bool{`{}`: true}},
		"namespace-not-in": {
			`{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"selectors-namespace-not-in"},"matchExpressions":[{"key":"test","operator":"NotIn","values":["selectors-namespace-not-in"]}]},` + matched + `}`,
			map[string]bool{`{}`: false},
		},
		"namespace-exists":  {`{"namespaceSelector":{"matchLabels":{"test":"selectors-namespace-exists"},"matchExpressions":[{"key":"none","operator":"Exists"}]},` + matched + `}`, map[string]bool{`{}`: false}},
		"namespace-missing": {`{"namespaceSelector":{"matchLabels":{"test":"selectors-namespace-missing"},"matchExpressions":[{"key":"none","operator":"DoesNotExist"}]},` + matched + `}`, map[string]bool{`{}`: true}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := space(t, c, "selectors-"+name, map[string]string{"selectors-" + name: one.spec})
			for labels, want := range one.want {
				got := try(t, c, ns, pod("p", labels, "", container("c", "", "")))
				if (got.Metadata.Labels["got"] == "it") != want || (got.Metadata.Annotations["polder/profiles"] != "") != want {
					t.Errorf("with %s it is %+v", labels, got.Metadata)
				}
			}
		})
	}
	// A profile without any selector applies to all namespaces but the system's.
	space(t, c, "selectors-all", map[string]string{"selectors-all": `{"namespaceSelector":null,` + matched + `}`})
	for namespace, want := range map[string]string{"default": "it", "kube-system": ""} {
		if got := try(t, c, namespace, pod("p", "{}", "", container("c", "", ""))); got.Metadata.Labels["got"] != want {
			t.Errorf("in %s it is %+v", namespace, got.Metadata)
		}
	}
}

func TestFields(t *testing.T) {
	c := cluster(t)
	for name, one := range map[string]struct {
		profiles map[string]string
		pod      string
		want     func(m made) string
	}{
		"labels": {
			map[string]string{"1": `{"labels":{"new":"1","old":"2"},"labelKeysMapping":{"old":"copy","missing":"none","new":"copy-of-new"},"labelSuffixes":{"kept":"-s","old":"-t","copy":"-u","absent":"-v","none":"w"}}`},
			pod("p", `{"old":"1","kept":"k"}`, "", container("c", "", "")),
			func(m made) string {
				return list(m.Metadata.Labels) + " | copy=2-u copy-of-new=1 kept=k-s new=1 none=w old=2-t"
			},
		},
		"annotations": {
			map[string]string{"1": `{"annotations":{"example.com/a.b":"1","old":"2"},"annotationKeysMapping":{"old":"copy","missing":"none"}}`},
			strings.Replace(pod("p", `{}`, "", container("c", "", "")), `"labels"`, `"annotations":{"old":"1","kept":"x y\"z"},"labels"`, 1),
			func(m made) string {
				return list(m.Metadata.Annotations) + ` | copy=2 example.com/a.b=1 kept=x y"z none= old=2 polder/profiles=fields-annotations-1`
			},
		},
		"classes go before labels": {
			map[string]string{"1": `{"qosClass":"LS","koordinatorPriority":2147483647,"labels":{"koordinator.sh/qosClass":"BE","koordinator.sh/priority":"1"},"labelSuffixes":{"koordinator.sh/qosClass":"X"}}`},
			pod("p", `{"koordinator.sh/qosClass":"SYSTEM"}`, "", container("c", "", "")),
			func(m made) string {
				return list(m.Metadata.Labels) + " | koordinator.sh/priority=2147483647 koordinator.sh/qosClass=LS"
			},
		},
		"priority class": {
			map[string]string{"1": `{"priorityClassName":"own","schedulerName":"other"}`},
			pod("p", `{}`, `"priorityClassName":"koord-mid",`, container("c", "", "")),
			func(m made) string {
				return fmt.Sprintf("%s %d %s %s | own 5123 Never other", m.Spec.PriorityClassName, m.Spec.Priority, m.Spec.PreemptionPolicy, m.Spec.SchedulerName)
			},
		},
		"later profiles override": {
			map[string]string{
				"b": `{"labels":{"who":"b","b":"1"},"schedulerName":"b","priorityClassName":"koord-mid","labelSuffixes":{"who":"-b"}}`,
				"a": `{"labels":{"who":"a"},"schedulerName":"a","priorityClassName":"koord-prod","labelSuffixes":{"who":"-a"}}`,
				"c": `{"labelSuffixes":{"who":"-c"},"labelKeysMapping":{"b":"from-b"}}`,
			},
			pod("p", `{}`, "", container("c", "", "")),
			func(m made) string {
				return fmt.Sprintf("%s %s %s %d %s | b=1 from-b=1 who=b-b-c b koord-mid 7000 fields-later-profiles-override-a,fields-later-profiles-override-b,fields-later-profiles-override-c",
					list(m.Metadata.Labels), m.Spec.SchedulerName, m.Spec.PriorityClassName, m.Spec.Priority, m.Metadata.Annotations["polder/profiles"])
			},
		},
		"no profile enables another": {
			map[string]string{
				"a": `{"labels":{"second":"please"}}`,
				"b": `{"selector":{"matchLabels":{"second":"please"}},"labels":{"bad":"1"}}`,
				"c": `{"selector":{"matchExpressions":[{"key":"second","operator":"DoesNotExist"}]},"labels":{"good":"1"}}`,
			},
			pod("p", `{}`, "", container("c", "", "")),
			func(m made) string { return list(m.Metadata.Labels) + " | good=1 second=please" },
		},
		"patch": {
			map[string]string{"1": `{"labels":{"l":"1"},"patch":{"metadata":{"labels":{"l":"2","gone":null},"annotations":{"a":"b"}},"spec":{
				"terminationGracePeriodSeconds":7,"priorityClassName":"koord-free","schedulerName":"patched","activeDeadlineSeconds":null,"nodeSelector":{"disk":"ssd","zone":null},
				"securityContext":{"runAsUser":5,"seLinuxOptions":{"level":"s0"}},
				"tolerations":[{"key":"batch","operator":"Exists"}],
				"volumes":[{"name":"old","emptyDir":{"medium":"Memory"}},{"name":"new","emptyDir":{}}],
				"containers":[{"name":"c","image":"other","env":[{"name":"A","value":"2"},{"name":"C","value":"3"}],"resources":{"requests":{"memory":"2Gi"}},"securityContext":{"privileged":false}},{"name":"added","image":"side"}],
				"initContainers":[{"name":"first","image":"init"}]}}}`},
			pod("p", `{"gone":"1"}`, `"activeDeadlineSeconds":60,"nodeSelector":{"zone":"a","arch":"x"},"securityContext":{"runAsUser":1,"runAsGroup":2,"seLinuxOptions":{"user":"u"}},"tolerations":[{"key":"other","operator":"Exists"}],"volumes":[{"name":"old","emptyDir":{}}],`,
				`{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)"}],"resources":{"requests":{"cpu":"1","memory":"1Gi"}},"volumeMounts":[{"name":"old","mountPath":"/old"}]}`),
			func(m made) string {
				spec := m.raw["spec"].(map[string]any)
				one := m.Spec.Containers[0]
				keys := []any{spec["activeDeadlineSeconds"], spec["nodeSelector"], spec["securityContext"], len(spec["volumes"].([]any)), spec["volumes"].([]any)[0].(map[string]any)["emptyDir"]}
				return fmt.Sprint(list(m.Metadata.Labels), " ", m.Metadata.Annotations["a"], " ", m.Spec.TerminationGracePeriodSeconds, " ", m.Spec.PriorityClassName, m.Spec.Priority, " ", m.Spec.SchedulerName, " ", keys, " ",
					strings.Contains(fmt.Sprint(spec["tolerations"]), "other"), " ", one.Image, one.Env, " ", list(one.Resources.Requests), " ", len(m.Spec.Containers), m.Spec.Containers[1].Image, m.Spec.InitContainers[0].Image) +
					" | l=2 b 7 koord-free3000 patched [<nil> map[arch:x disk:ssd] map[runAsGroup:2 runAsUser:5 seLinuxOptions:map[level:s0 user:u]] 3 map[medium:Memory]] false other[{A 2} {B $(A)} {C 3}] cpu=1 memory=2Gi 2sideinit"
			},
		},
		// As in Koordinator's strategic merge, at any depth: fields that are not named stay, and null adds nothing.
		"patch of objects in objects": {
			map[string]string{"1": `{"patch":{"metadata":{"annotations":{"none":null}},"spec":{
				"nodeSelector":{"none":null},
				"securityContext":{"runAsUser":null,"seLinuxOptions":{"level":"s0","role":null}},
				"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}},
				"containers":[{"name":"c","lifecycle":{"preStop":{"httpGet":{"path":"/new","scheme":null}},"postStart":null},"resources":{"limits":{"memory":null,"cpu":"2"}}},
					{"name":"added","image":"side","resources":{"limits":{"memory":null,"cpu":"1"},"requests":null}},{"name":"second","image":"side","securityContext":{"capabilities":{"add":["X"]}}}],
				"initContainers":[{"name":"first","image":"init","resources":{"limits":{"cpu":null}}}]}}}`},
			pod("p", `{}`, `"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["m"]}]}}]}},`,
				`{"name":"c","image":"i","lifecycle":{"preStop":{"httpGet":{"path":"/old","port":80,"host":"h","scheme":"HTTPS"}},"postStart":{"exec":{"command":["a"]}}}}`),
			func(m made) string {
				spec := m.raw["spec"].(map[string]any)
				nodes := spec["affinity"].(map[string]any)["nodeAffinity"].(map[string]any)
				var containers []string
				for _, one := range append(spec["containers"].([]any), spec["initContainers"].([]any)...) {
					one := one.(map[string]any)
					containers = append(containers, fmt.Sprint(one["name"], one["lifecycle"], one["resources"], one["securityContext"]))
				}
				return fmt.Sprint(spec["nodeSelector"], " ", spec["securityContext"], len(nodes), nodes["requiredDuringSchedulingIgnoredDuringExecution"], containers) +
					" | <nil> map[seLinuxOptions:map[level:s0]] 2 map[nodeSelectorTerms:[map[matchFields:[map[key:metadata.name operator:In values:[n]]]]]] " +
					"[cmap[preStop:map[httpGet:map[host:h path:/new port:80 scheme:HTTP]]] map[limits:map[cpu:2] requests:map[cpu:2]] <nil> " +
					"added<nil> map[limits:map[cpu:1] requests:map[cpu:1]] <nil> second<nil> map[] map[capabilities:map[add:[X]]] first<nil> map[] <nil>]"
			},
		},
		"nothing at all": {
			map[string]string{"1": `{}`},
			pod("p", `{}`, "", container("c", `"cpu":"1"`, "")),
			func(m made) string {
				return list(m.Metadata.Labels) + m.Spec.SchedulerName + list(m.Spec.Containers[0].Resources.Requests) + " | default-schedulercpu=1"
			},
		},
		"names like the mark's": {
			map[string]string{"": `{"labels":{"got":"it"}}`, "noted": `{"labels":{"got":"too"}}`},
			pod("p", `{}`, "", container("c", "", "")),
			func(m made) string {
				return list(m.Metadata.Labels) + m.Metadata.Annotations["polder/profiles"] + " | got=itnoted,polder"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := "fields-" + strings.NewReplacer(" ", "-", "'", "").Replace(name)
			profiles := map[string]string{}
			for key, spec := range one.profiles {
				full := ns + "-" + key
				if name == "names like the mark's" {
					full = map[string]string{"": "polder", "noted": "noted"}[key]
				}
				profiles[full] = spec
			}
			space(t, c, ns, profiles)
			// The server applies profiles, and rounds, in no order: the result is always the same.
			for range 10 {
				got, want, _ := strings.Cut(one.want(try(t, c, ns, one.pod)), " | ")
				if strings.TrimSpace(got) != want {
					t.Fatalf("it is\n%s\nwant\n%s", got, want)
				}
			}
		})
	}
}

func TestHowManyProfilesMatch(t *testing.T) {
	c := cluster(t)
	profiles := map[string]string{}
	for _, key := range []string{"e", "c", "a", "d", "b"} {
		profiles["many-"+key] = `{"labels":{"last":"` + key + `"},"labelSuffixes":{"all":"` + key + `"}}`
	}
	ns := space(t, c, "many", profiles)
	for range 30 {
		if got := try(t, c, ns, pod("p", `{"all":"x"}`, "", container("c", "", ""))); got.Metadata.Labels["all"] != "xabcde" || got.Metadata.Labels["last"] != "e" {
			t.Fatalf("five profiles make it %v", got.Metadata)
		}
	}
	space(t, c, "many-more", map[string]string{"many-f": `{"namespaceSelector":{"matchLabels":{"test":"many"}}}`})
	for range 10 {
		if message := refused(t, c, "POST", podsOf(ns)+"?dryRun=All", pod("p", `{"all":"x"}`, "", container("c", "", ""))); !strings.Contains(message, "no more than 5 ClusterColocationProfiles may match a pod") {
			t.Fatalf("with six it is refused with %s", message)
		}
	}
}

// The API server itself refuses at once what a pod cannot have.
func TestPodIsRefusedWhereAProfileCannotBeApplied(t *testing.T) {
	c := cluster(t)
	ns := space(t, c, "bad", map[string]string{
		"bad-class": `{"selector":{"matchLabels":{"bad":"class"}},"priorityClassName":"no-such-class"}`,
		"bad-field": `{"selector":{"matchLabels":{"bad":"field"}},"patch":{"spec":{"noSuchField":1}}}`,
		"bad-pair":  `{"selector":{"matchLabels":{"bad":"pair"}},"qosClass":"BE"}`,
	})
	for bad, want := range map[string]string{
		"class": `no PriorityClass with name no-such-class was found`,
		"field": `unknown field "spec.noSuchField"`,
		"pair":  `koordinator.sh/qosClass=BE and priorityClass= cannot be used in combination`,
	} {
		if message := refused(t, c, "POST", podsOf(ns)+"?dryRun=All", pod("p", `{"bad":"`+bad+`"}`, "", container("c", "", ""))); !strings.Contains(message, want) {
			t.Errorf("%s: it is refused with %s", bad, message)
		}
	}
}

// As many containers and labels as a pod may reasonably have stay within the server's cost limit of expressions.
func TestLargePods(t *testing.T) {
	c := cluster(t)
	var labels, suffixes []string
	for i := range 20 {
		labels = append(labels, fmt.Sprintf(`"example.com/label-%d":"value-%d"`, i, i))
		suffixes = append(suffixes, fmt.Sprintf(`"example.com/label-%d":"-s"`, i))
	}
	all := strings.Join(labels, ",")
	spec := fmt.Sprintf(`{"selector":{"matchLabels":{%s}},"qosClass":"BE","priorityClassName":"koord-batch","schedulerName":"koord-scheduler","labels":{%s},"annotations":{%s},"labelSuffixes":{%s},
		"patch":{"spec":{"nodeSelector":{%s}}}}`, all, all, all, strings.Join(suffixes, ","), all)
	ns := space(t, c, "large", map[string]string{"large-1": spec, "large-2": spec, "large-3": spec})
	var containers []string
	for i := range 30 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":"none","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"resources":{"requests":{"cpu":"%dm","memory":"1Gi"},"limits":{"cpu":"2","memory":"2Gi"}}}`, i, i+1))
	}
	all30 := strings.Join(containers, ",")
	got := try(t, c, ns, pod("p", "{"+all+"}", `"initContainers":[`+strings.ReplaceAll(all30, `"name":"c`, `"name":"i`)+`],`, all30))
	if got.Metadata.Labels["example.com/label-19"] != "value-19-s" || list(got.Spec.Containers[29].Resources.Requests) != "batch-cpu=30 batch-memory=1Gi" || list(got.Spec.InitContainers[0].Resources.Limits) != "batch-cpu=2k batch-memory=2Gi" {
		t.Errorf("it is %+v", got)
	}
}
