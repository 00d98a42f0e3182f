package cpumanager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"polder/tests/await"
)

const (
	none   = `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`
	static = `{"policyName":"static","defaultCpuSet":"0,2-7","entries":{"a":{"c":"1"}},"checksum":1}`
)

// put replaces the file as kubelet does.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubelet")
	r := NewReader(dir)
	read := func(what, policy, want string) *State {
		t.Helper()
		s, err := r.Read()
		switch {
		case want == "" && err != nil:
			t.Fatalf("%s: %v", what, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), r.Path())):
			t.Fatalf("%s: error %v, want %q and the path", what, err, want)
		case policy == "" && s != nil, policy != "" && (s == nil || s.Policy != policy):
			t.Fatalf("%s: state %+v, want policy %q", what, s, policy)
		}
		return s
	}
	read("no kubelet", "", "")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	read("no state yet", "", "")
	put(t, r.Path(), none)
	first := read("none", "none", "")
	if again := read("the same", "none", ""); again != first {
		t.Error("an unchanged file gives another state")
	}
	put(t, r.Path(), none)
	if again := read("the same again", "none", ""); again != first {
		t.Error("the same text in a new file gives another state")
	}
	put(t, r.Path(), static)
	read("static", "static", "")
	put(t, r.Path(), static[:40])
	read("torn", "", "cut off")
	put(t, r.Path(), "")
	read("empty", "", "cut off")
	put(t, r.Path(), static)
	read("whole again", "static", "")
	if err := os.Remove(r.Path()); err != nil {
		t.Fatal(err)
	}
	read("removed", "", "it existed before and is gone")
	put(t, r.Path(), none)
	read("made again", "none", "")
	for what, make := range map[string]func() error{
		"a directory":  func() error { return os.Mkdir(r.Path(), 0o755) },
		"a link":       func() error { return os.Symlink("/etc/passwd", r.Path()) },
		"a FIFO":       func() error { return unix.Mkfifo(r.Path(), 0o600) },
		"a large file": func() error { return os.WriteFile(r.Path(), make([]byte, MaxBytes+1), 0o600) },
	} {
		if err := os.RemoveAll(r.Path()); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		read(what, "", "read kubelet's CPU manager state")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	read("kubelet removed for good", "", "")
}

// A file that has not changed for a while is not read again, and one that was written at the instant of the last reading is.
func TestReaderReadsWhatChanged(t *testing.T) {
	r := NewReader(t.TempDir())
	put(t, r.Path(), static)
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(static, `"0,2-7"`, `"0,3-7"`, 1) // of the same size
	for range 50 {
		put(t, r.Path(), other)
		if s, err := r.Read(); err != nil || s.Default.String() != "0,3-7" {
			t.Fatalf("%v, %v; want the file's new text", s, err)
		}
		put(t, r.Path(), static)
		if s, err := r.Read(); err != nil || s.Default.String() != "0,2-7" {
			t.Fatalf("%v, %v; want the file's new text", s, err)
		}
	}
	settled(t, r)
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Read() }); n > 3 {
		t.Errorf("%.0f allocations to see that nothing has changed", n)
	}
}

// settled waits until the file is so old that its times show every change.
func settled(t testing.TB, r *Reader) {
	t.Helper()
	await.Until(t, 10*settleTime, "the file is old enough", func() string {
		if _, err := r.Read(); err != nil {
			return err.Error()
		}
		if !r.isSettled {
			return "it is not"
		}
		return ""
	})
}

// BenchmarkUnchanged measures a tick while kubelet's state does not change.
func BenchmarkUnchanged(b *testing.B) {
	r := NewReader(b.TempDir())
	if err := os.WriteFile(r.Path(), []byte(static), 0o600); err != nil {
		b.Fatal(err)
	}
	settled(b, r)
	for b.Loop() {
		if s, err := r.Read(); err != nil || s == nil {
			b.Fatal(s, err)
		}
	}
}
