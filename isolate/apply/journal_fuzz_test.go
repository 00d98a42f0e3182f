package apply

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/isolate/plan"
	"polder/lib/cgroup"
)

// FuzzJournal restores from an arbitrary journal: only valid entries count, and they can change only files that isolate
// writes, below the hierarchy.
func FuzzJournal(f *testing.F) {
	line := `{"controller":"cpu","cgroup":"/a","file":"cpu.weight","key":"cpuWeight","inode":INODE,"first":"100"}` + "\n"
	for _, seed := range []string{
		line, strings.Replace(line, `"/a"`, `{"base64":"L2H/"}`, 1), strings.Replace(line, `"/a"`, `{"base64":"L2E="}`, 1),
		strings.Replace(line, `"/a"`, `{"base64":"Ly4uL291dHNpZGU="}`, 1), strings.Replace(line, `"/a"`, `{"base64":7}`, 1), `{"cgroup"0`,
		strings.Replace(line, `/a`, `/a\u0001`, 1), strings.Replace(line, `/a`, `/a\u0000`, 1),
		line + `{"controller":"cpu","cgroup":"/a","file":"cpu.weight","inode":INODE,"wrote":"50"}` + "\n",
		line[:40], "\x00\xff\n[]\nnull\n{}\n",
		`{"controller":"cpu","cgroup":"/../outside","file":"cpu.weight","inode":1,"first":"1"}` + "\n",
		`{"controller":"cpu","cgroup":"/a","file":"../../outside","inode":1,"first":"1"}` + "\n",
		`{"controller":"cpuset","cgroup":"/a","file":"cpuset.cpus","inode":INODE,"first":"0-99999999","disturbed":true}` + "\n",
		`{"controller":"cpu","cgroup":"/a","file":"cpu.max","inode":INODE,"first":"x\ny"}` + "\n",
		`{"controller":"io","cgroup":"/a","file":"io.max","device":"8:0","inode":INODE,"first":"rbps=1 wbps=max riops=max wiops=max"}` + "\n",
		`{"controller":"io","cgroup":"/a","file":"io.max","device":"8:0 rbps=1\n8:16","inode":INODE,"first":""}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		base := filepath.Join(root, "sys/fs/cgroup")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.MkdirAll(filepath.Join(base, "a"), 0o755))
		must(os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpu cpuset memory io\n"), 0o600))
		must(os.WriteFile(filepath.Join(base, "cgroup.procs"), []byte("1\n"), 0o600))
		must(os.WriteFile(filepath.Join(base, "a/cgroup.procs"), []byte("1\n"), 0o600))
		for _, name := range []string{"cpu.weight", "cpu.max", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.max", "io.max"} {
			must(os.WriteFile(filepath.Join(base, "a", name), []byte("50\n"), 0o600))
		}
		outside := filepath.Join(root, "outside")
		must(os.WriteFile(outside, []byte("mine\n"), 0o600))
		h, err := cgroup.Detect(root)
		must(err)
		inode, err := h.Inode("/a")
		must(err)

		path := filepath.Join(root, "journal")
		must(os.WriteFile(path, replaceInode(data, inode), 0o600))
		j, err := OpenJournal(path, root, time.Now)
		must(err)
		defer func() { j.Close() }()
		for file := range j.records {
			if !plan.IsKnown(file) || cgroup.CheckAnyNames(file.Cgroup) != nil {
				t.Errorf("journal %q has a record of %+v", data, file)
			}
		}
		a := New(Options{Hierarchy: h, Journal: j, Log: quiet()})
		defer a.Close()
		_, _ = a.Restore(true)
		for name, want := range map[string]string{outside: "mine\n", filepath.Join(base, "a/cgroup.procs"): "1\n", filepath.Join(base, "cgroup.procs"): "1\n"} {
			if got, err := os.ReadFile(name); err != nil || string(got) != want {
				t.Errorf("journal %q: %s is %q, %v; want it untouched", data, name, got, err)
			}
		}
	})
}

// replaceInode replaces INODE in a seed by the cgroup's own inode.
func replaceInode(data []byte, inode uint64) []byte {
	return bytes.ReplaceAll(data, []byte("INODE"), strconv.AppendUint(nil, inode, 10))
}
