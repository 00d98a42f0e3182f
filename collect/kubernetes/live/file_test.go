package live

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/collect/kubernetes"
	"polder/tests/await"
)

func podText(name, node string) string {
	return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":%q,"uid":%q},"spec":{"nodeName":%q}}`, name, name, node)
}

func list(pods ...string) string {
	return `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + strings.Join(pods, ",") + `]}`
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(list(podText("a", "n1"), podText("b", "n2")))
	f, err := OpenFile(t.Context(), path, "n1", kubernetes.Reading{}, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	names := func() string {
		var out []string
		for _, p := range f.Pods() {
			out = append(out, p.Tick.Name)
		}
		return strings.Join(out, " ")
	}
	until := func(what, want, complaint string) {
		t.Helper()
		await.Until(t, time.Minute, what, func() string {
			got, err := names(), f.PodsError()
			if got == want && (complaint == "" && err == nil || complaint != "" && err != nil && strings.Contains(err.Error(), complaint)) {
				return ""
			}
			return fmt.Sprintf("%q, %v; want %q, %q", got, err, want, complaint)
		})
	}
	until("this node's alone", "a", "")
	before := f.PodsVersion()
	write(podText("c", "n1"))
	until("one pod", "c", "")
	if f.PodsVersion() == before {
		t.Error("the version did not change with the file")
	}
	write(list(podText("d", "n1"))[:60])
	until("torn", "c", "unexpected EOF: the pod list is ")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("gone", "c", "no such file or directory: the pod list is ")
	write(list(podText("d", "n1"), podText("e", "n1")))
	until("back", "d e", "")
	if n, err := f.Node(); n != nil || err != nil {
		t.Errorf("node %v, %v; want neither", n, err)
	}
	if c, err := f.Config(); c != nil || err != nil {
		t.Errorf("config %s, %v; want neither", c, err)
	}
}

func TestEachPod(t *testing.T) {
	for text, want := range map[string]string{
		list():                  "",
		list(podText("a", "n")): "a",
		`{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"kind":"PodList"}`: "a b", // as the API has it
		`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}`:                  "",    // kubelet's, without pods
		list(podText("a", "n")) + "\n":                                                     "a",
		list(podText("a", "n")) + list(podText("b", "n")):                                  "!something follows the first",
		podText("a", "n") + "]":                                                            "!something follows the first",
		podText("a", "n"):                                                                  "a",
		"":                                                                                 "!want a list of pods",
		"[]":                                                                               "!want a list of pods",
		"3":                                                                                "!want a list of pods",
		"{}":                                                                               "!want a list of pods",
		`{"kind":"List"}`:                                                                  "!want a list of pods",
		`{"kind":"List","items":{}}`:                                                       "!want a list of pods",
		`{"kind":"List","items":[3]}`:                                                      "!cannot unmarshal",
		`{"kind":"NodeList","items":[]}`:                                                   "!want a list of pods",
		`{"kind":"List","items":[{"kind":"Node"}]}`: "!a Node is among them",
		`{"kind":"List","items":[`:                  "!EOF",
		`{"kind":"List","items":[]`:                 "!EOF",
	} {
		var names []string
		err := eachPod(strings.NewReader(text), func(o map[string]any) {
			meta, _ := o["metadata"].(map[string]any)
			names = append(names, fmt.Sprint(meta["name"]))
		})
		problem, bad := strings.CutPrefix(want, "!")
		switch {
		case bad && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v; want %q", text, err, problem)
		case !bad && (err != nil || strings.Join(names, " ") != want):
			t.Errorf("%s: %q, %v; want %q", text, names, err, want)
		}
	}
}

func FuzzEachPod(f *testing.F) {
	for _, seed := range []string{list(podText("a", "n")), podText("a", "n"), `{"items":[],"items":[{}],"kind":"List"}`, "{", `{"kind":"List","items":[[]]}`} {
		f.Add([]byte(seed))
	}
	reading := kubernetes.Reading{}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := eachPod(strings.NewReader(string(data)), func(o map[string]any) { reading.Pod(o) })
		if err == nil && !json.Valid(data) {
			t.Fatalf("%q is accepted", data)
		}
	})
}
