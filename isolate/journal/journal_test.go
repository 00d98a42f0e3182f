package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"polder/tests/need"
)

type entry struct {
	Name string `json:"name"`
	Stamp
	Value string `json:"value,omitempty"`
}

// testJournal is a journal with the names of the entries that were read.
type testJournal struct {
	*File[entry, *entry]
	names []string
}

type opener = func(path, root string, now func() time.Time, kind func(*entry) Kind, load func(*entry)) (*File[entry, *entry], error)

// kindOf takes entries without a name for those of another version if they have a value.
func kindOf(e *entry) Kind {
	switch {
	case e.Name != "":
		return Known
	case e.Value != "":
		return Unknown
	}
	return Foreign
}

func openAt(t *testing.T, open opener, path, root string) (*testJournal, error) {
	t.Helper()
	k := &testJournal{}
	now := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	var err error
	k.File, err = open(path, root, now, kindOf, func(e *entry) { k.names = append(k.names, e.Name) })
	if err == nil {
		t.Cleanup(func() { k.Close() })
	}
	return k, err
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// If another isolate replaces or removes the journal between opening and locking, it is opened again: the locked file is the one at
// the path.
func TestLockedFileIsAtPath(t *testing.T) {
	for name, other := range map[string]func(path string) error{
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			times := 0
			afterOpen = func() {
				if times++; times <= 3 {
					if err := other(path); err != nil {
						t.Error(err)
					}
				}
			}
			defer func() { afterOpen = func() {} }()
			j, err := openAt(t, Open, path, "/")
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Append([]entry{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			if len(read(t, path)) == 0 {
				t.Error("the file that the path names lacks the entry")
			}
			if _, err := openAt(t, Open, path, "/"); !errors.Is(err, ErrInUse) {
				t.Errorf("a second isolate: %v; want that the journal is in use", err)
			}
		})
	}
}

// newMachine creates the root directory of a machine with the boot ID "b".
func newMachine(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// What another version of isolate wrote in this boot stays as it is when the journal is rewritten, and when it would be removed.
func TestEntriesOfAnotherVersionStay(t *testing.T) {
	root := newMachine(t)
	const (
		unknown  = `{ "new":"x", "value":"1", "boot":"b", "time":"2026-01-01T00:00:00Z"}` + "\n"
		mistyped = `{"name":{"of":"x"},"boot":"b","time":"2026-01-01T00:00:00Z"}` + "\n"
	)
	text := `{"name":"a","boot":"b"}` + "\n" + unknown + strings.Replace(unknown, `"b"`, `"earlier"`, 1) +
		`{"name":"old","boot":"earlier"}` + "\n[]\n" + mistyped + `{"name":"cu`
	for name, open := range map[string]opener{"locked": Open[entry], "not locked": OpenUnlocked[entry]} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := openAt(t, open, path, root)
			if err != nil {
				t.Fatal(err)
			}
			counts := []int{j.UnknownLines(), j.StaleLines, j.InvalidLines}
			if !slices.Equal(j.names, []string{"a"}) || !slices.Equal(counts, []int{2, 2, 2}) || !j.HasObsoleteLines() {
				t.Errorf("entries %q, unknown, stale and bad lines %d; want a, 2 of each", j.names, counts)
			}
			if err := j.Rewrite([]entry{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			added := `{"name":"a","boot":"b","time":"2026-01-01T00:00:00Z"}` + "\n"
			if got, want := read(t, path), unknown+mistyped+added; got != want {
				t.Errorf("rewritten as %q; want %q", got, want)
			}
			if err := j.Append([]entry{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			if got, want := read(t, path), unknown+mistyped+added+added; got != want || j.Size() != int64(len(want)) {
				t.Errorf("continued as %q, size %d; want %q", got, j.Size(), want)
			}
			if err := j.Remove(); err != nil {
				t.Fatal(err)
			}
			if got, want := read(t, path), unknown+mistyped; got != want {
				t.Errorf("at the end it is %q; want %q", got, want)
			}
			j.Close()
			if j, err = openAt(t, open, path, root); err != nil || j.IsForeign() || j.HasObsoleteLines() || j.UnknownLines() != 2 {
				t.Errorf("opened again: %v, foreign %t, %d unknown; want a journal with these 2", err, j.IsForeign(), j.UnknownLines())
			}
		})
	}
}

// Both kinds of journal read the same entries, and count the same lines.
func TestRead(t *testing.T) {
	root := newMachine(t)
	for name, open := range map[string]opener{"locked": Open[entry], "not locked": OpenUnlocked[entry]} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			text := `{"name":"a","boot":"b"}` + "\n\n\x00\n" + `{"name":"old","boot":"a"}` + "\n" +
				`{"boot":"b"}` + "\n" + `{"name":"b","boot":"b"}` + "\n" + `{"name":"cu`
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := openAt(t, open, path, root)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(j.names, []string{"a", "b"}) || j.InvalidLines != 3 || j.StaleLines != 1 || j.IsForeign() {
				t.Errorf("entries %q, %d bad, %d stale, foreign %t; want a and b, 3, 1, false", j.names, j.InvalidLines, j.StaleLines, j.IsForeign())
			}
			if err := j.Append([]entry{{Name: "c", Value: "1"}}); err != nil { // after a cut line
				t.Fatal(err)
			}
			want := strings.TrimSuffix(text, `{"name":"cu`) + `{"name":"c","boot":"b","time":"2026-01-01T00:00:00Z","value":"1"}` + "\n"
			if got := read(t, path); got != want {
				t.Errorf("the journal is %q; want %q", got, want)
			}
			if err := j.Remove(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the journal is still there: %v", err)
			}
		})
	}
}

func TestFirstEntryCreatesUnlockedJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openAt(t, OpenUnlocked, path, "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("before the first entry: %v; want no file", err)
	}
	if err := j.Append([]entry{{Name: "a"}}); err != nil || j.Size() != int64(len(read(t, path))) {
		t.Errorf("%v, size %d of %q", err, j.Size(), read(t, path))
	}
}

// A full disk truncates an entry: the file is unchanged, and the next entry is on a line of its own.
func TestAppendToAFullDisk(t *testing.T) {
	need.Mount(t)
	for name, open := range map[string]opener{"locked": Open[entry], "not locked": OpenUnlocked[entry]} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("polder-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			path := filepath.Join(dir, "journal")
			j, err := openAt(t, open, path, "/")
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Append([]entry{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			before := read(t, path)
			large := entry{Name: "large", Value: strings.Repeat("x", 2*os.Getpagesize())}
			if err := j.Append([]entry{large}); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "write journal "+path+": ") {
				t.Errorf("a large entry: %v; want that the disk is full", err)
			}
			if got := read(t, path); got != before {
				t.Errorf("the journal is %q; want it as before, %q", got, before)
			}
			if err := j.Append([]entry{{Name: "b"}}); err != nil {
				t.Fatal(err)
			}
			again, err := openAt(t, OpenUnlocked, path, "/")
			if err != nil || !slices.Equal(again.names, []string{"a", "b"}) || again.InvalidLines > 0 {
				t.Errorf("read again: entries %q, %d bad, %v", again.names, again.InvalidLines, err)
			}
		})
	}
}

// A crash of the machine leaves a journal empty, cut off, or with NUL bytes where data was not on the disk yet. The next boot neither
// takes such a file for another program's nor loses entries of its own in it, also if the next crash follows at once.
func TestJournalAfterCrashOfMachine(t *testing.T) {
	const old, zeros = `{"name":"old","boot":"earlier"}` + "\n", "\x00\x00\x00\x00"
	for name, text := range map[string]string{
		"empty":                         "",
		"only NUL bytes":                zeros,
		"a cut line":                    `{"name":"o`,
		"a cut line and NUL bytes":      `{"name":"o` + zeros,
		"a lost block":                  zeros + `ld"}` + "\n",
		"a lost block in a line":        `{"na` + zeros + `ld"}` + "\n",
		"an entry, a lost block":        old + `{"na` + zeros + `ld"}` + "\n",
		"an entry, a cut line":          old + `{"name":"o`,
		"an entry, NUL bytes":           old + zeros,
		"an entry without its newline":  strings.TrimSuffix(old, "\n"),
		"NUL bytes in place of newline": strings.TrimSuffix(old, "\n") + zeros,
	} {
		for _, second := range []string{"", `{"name":"o`, zeros, `{"name":"o` + zeros} {
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := openAt(t, Open, path, "/")
			if err != nil || j.IsForeign() || len(j.names) > 0 {
				t.Fatalf("%s: entries %q, foreign %t, %v; want a journal without entries of this boot", name, j.names, j.IsForeign(), err)
			}
			if err := j.Append([]entry{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
			j.Close()
			j, err = openAt(t, Open, path, "/")
			if err != nil || j.IsForeign() || !slices.Equal(j.names, []string{"a"}) {
				t.Errorf("%s: entries %q, foreign %t, %v; want the new entry", name, j.names, j.IsForeign(), err)
			}
			j.Close()
			// The last entry is lost in the second crash.
			data := read(t, path)
			before, _, _ := strings.Cut(data, `{"name":"a"`)
			if err := os.WriteFile(path, []byte(before+second), 0o600); err != nil {
				t.Fatal(err)
			}
			if j, err = openAt(t, Open, path, "/"); err != nil || j.IsForeign() {
				t.Errorf("%s, then %q: foreign %t, %v", name, second, j.IsForeign(), err)
			}
		}
	}
	for _, text := range []string{"a\n", "a", "{\n", `{"a":1}`, `{"a":1}` + "\n" + `{"na`, "\x7fELF\x00\nx\x00"} {
		path := filepath.Join(t.TempDir(), "foreign")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if j, err := openAt(t, Open, path, "/"); err != nil || !j.IsForeign() {
			t.Errorf("%q: foreign %t, %v; want another program's file", text, j.IsForeign(), err)
		}
	}
}

// Nothing waits for the disk: every system call that does so fails here.
func TestNothingIsSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openAt(t, Open, path, "/")
	if err != nil {
		t.Fatal(err)
	}
	var appended, rewritten error
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with its filter
		err := refuseSync()
		if err == nil {
			appended, rewritten = j.Append([]entry{{Name: "a"}}), j.Rewrite([]entry{{Name: "b"}})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal("set a seccomp filter: ", err)
	}
	if appended != nil || rewritten != nil {
		t.Errorf("append: %v, rewrite: %v", appended, rewritten)
	}
	if got := read(t, path); !strings.HasPrefix(got, `{"name":"b"`) {
		t.Errorf("the journal is %q; want what was rewritten", got)
	}
}

// refuseSync has the kernel refuse this thread's system calls that wait for a disk.
func refuseSync() error {
	calls := []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC, unix.SYS_SYNCFS, unix.SYS_SYNC_FILE_RANGE}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the call's number
	for i, call := range calls {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(calls) - i), K: call})
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}
