package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

// object is an API object, or a part of one.
type object = map[string]any

// onceWith returns the line that collect --once writes on node n1 of a machine that has these files beside the least that it needs, where
// the cluster has these pods.
func onceWith(t *testing.T, files map[string]string, pods []object) []byte {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"proc/uptime": "1000.00 1.00", "proc/stat": "cpu0 100 0 0 900\n", "sys/devices/system/cpu/online": "0",
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids",
	}
	maps.Copy(all, files)
	list, err := json.Marshal(object{"kind": "List", "items": pods})
	if err != nil {
		t.Fatal(err)
	}
	all["pods.json"] = string(list)
	for path, content := range all {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out, log bytes.Buffer
	status := command().Execute(t.Context(), stage.Env{
		Args: []string{
			"collect", "--once", "--once-over", "10ms", "--node", "n1", "--root", root, "--pods", filepath.Join(root, "pods.json"),
		},
		In: bytes.NewReader(nil), Out: &out, Err: &log, Getenv: os.Getenv, Now: time.Now,
	})
	if status != 0 {
		t.Fatalf("status %d: %s", status, log.String())
	}
	return out.Bytes()
}

// podsOf decodes the pods of a line.
func podsOf(t *testing.T, raw []byte) []tick.Pod {
	t.Helper()
	line, err := tick.ParseLine(raw)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := line.Decode(tick.SectionSample)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Sample.Pods
}

// On CRI-O, which gives a pod no sandbox, a container that started anew while the status was stale is the pod's only cgroup, of an unknown
// ID. Its use counts.
func TestRestartOnCRIO(t *testing.T) {
	const cgroup = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f4e8a3a_1111_4000_8000_000000000001.slice/"
	pod := func(statuses ...any) object {
		return object{
			"kind": "Pod", "metadata": object{"namespace": "a", "name": "web", "uid": "8f4e8a3a-1111-4000-8000-000000000001"},
			"spec":   object{"nodeName": "n1", "containers": []any{object{"name": "main"}, object{"name": "side"}}},
			"status": object{"phase": "Running", "containerStatuses": statuses},
		}
	}
	state := func(name, id string) any {
		return object{"name": name, "containerID": "cri-o://" + id, "state": object{"running": object{}}}
	}
	for name, c := range map[string]struct {
		pod     object
		cgroups []string
		want    []string
	}{
		"a restart beside a known one": {
			pod(state("main", "old"), state("side", "b")),
			[]string{"crio-new.scope", "crio-b.scope"},
			[]string{"main", "side"},
		},
		"two restarts": {
			pod(state("main", "old"), state("side", "older")),
			[]string{"crio-1.scope", "crio-2.scope"},
			[]string{"crio-1.scope", "crio-2.scope"},
		},
		"one restart of two": {
			pod(state("main", "old"), state("side", "older")),
			[]string{"crio-1.scope", "crio-conmon-1.scope"},
			[]string{"crio-1.scope"},
		},
		"a first start": {pod(), []string{"crio-1.scope"}, []string{"crio-1.scope"}},
	} {
		files := map[string]string{}
		for _, name := range c.cgroups {
			files[cgroup+name+"/cpu.stat"] = "usage_usec 1000000\n"
		}
		pods := podsOf(t, onceWith(t, files, []object{c.pod}))
		if len(pods) != 1 {
			t.Fatalf("%s: %d pods", name, len(pods))
		}
		var got []string
		for _, c := range pods[0].Containers {
			got = append(got, c.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || pods[0].IsIdle() {
			t.Errorf("%s: containers %q, idle %t; want %q", name, got, pods[0].IsIdle(), c.want)
		}
	}
}

// However many pods tenants create on a node, and whatever they write, the next stage accepts the tick. The pods need not start.
func TestManyPodsFit(t *testing.T) {
	pod := func(name string, marks object) object {
		return object{
			"kind": "Pod", "metadata": object{"namespace": "a", "name": name, "uid": name, "labels": marks, "annotations": marks},
			"spec": object{"nodeName": "n1", "containers": []any{object{"name": "main"}}}, "status": object{"phase": "Pending"},
		}
	}
	crowd := object{}
	for i := range 5 {
		crowd[fmt.Sprintf("koordinator.sh/%d", i)] = strings.Repeat("\x01", 600)
	}
	pods := []object{pod("modest", object{"koordinator.sh/qosClass": "LS", "koordinator.sh/note": "x"})}
	for i := range 700 {
		pods = append(pods, pod(fmt.Sprint("crowd-", i), crowd))
	}
	line := onceWith(t, nil, pods)
	if len(line) > tick.DefaultMaxLine/2 {
		t.Errorf("%d bytes; want far less than %d", len(line), tick.DefaultMaxLine)
	}
	got := podsOf(t, line)
	i := slices.IndexFunc(got, func(p tick.Pod) bool { return p.Name == "modest" })
	if len(got) != len(pods) || i < 0 || len(got[i].Labels) != 2 || len(got[i].Errors) > 0 {
		t.Errorf("%d pods, the modest one %+v; want %d, and that whole", len(got), got[max(0, i)], len(pods))
	}
}
