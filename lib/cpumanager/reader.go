package cpumanager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Reader reads the file again when it has changed. It is not safe for concurrent use.
type Reader struct {
	path    string
	existed bool // the file has existed
	id      identity
	state   *State
	err     error
	// isSettled means that the file was not written just before it was read: another write at the same instant would
	// not change its times.
	isSettled bool
}

// identity changes whenever the file does.
type identity struct {
	dev, inode       uint64
	size             int64
	modified, change unix.Timespec
}

// NewReader returns a Reader of the file in kubelet's root directory.
func NewReader(kubeletRoot string) *Reader { return &Reader{path: filepath.Join(kubeletRoot, File)} }

// Path returns the file's path.
func (r *Reader) Path() string { return r.path }

// settleTime exceeds the resolution of any file system's times.
const settleTime = 2 * time.Second

// Read returns the state, the same pointer as long as the file is the same; nil if there is no kubelet. The error means
// that there is a kubelet and that its assignments are unknown: the file cannot be read or parsed, or it existed before
// and is gone though kubelet's directory still exists.
func (r *Reader) Read() (*State, error) {
	var st unix.Stat_t
	err := unix.Lstat(r.path, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, r.absent()
	}
	if err != nil {
		return nil, r.fail(err)
	}
	id := identity{dev: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim, change: st.Ctim}
	if r.err == nil && r.state != nil && r.isSettled && id == r.id {
		return r.state, nil
	}
	data, err := r.file()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.absent()
	}
	if err != nil {
		return nil, r.fail(err)
	}
	state, err := Parse(data)
	if err != nil {
		return nil, r.fail(err)
	}
	if r.err == nil && r.state != nil && isEqual(r.state, state) {
		state = r.state
	}
	age := time.Since(time.Unix(st.Ctim.Unix()))
	r.existed, r.id, r.state, r.err = true, id, state, nil
	r.isSettled = age > settleTime
	return state, nil
}

// absent decides what a missing file means.
func (r *Reader) absent() error {
	if r.existed {
		if _, err := os.Stat(filepath.Dir(r.path)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return r.fail(errors.New("it existed before and is gone"))
		}
	}
	r.existed, r.state, r.err = false, nil, nil
	return nil
}

func (r *Reader) fail(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	r.existed, r.state = true, nil
	r.err = fmt.Errorf("read kubelet's CPU manager state %s: %w", r.path, err)
	return r.err
}

// file reads the file. It opens nothing that could block, and follows no symbolic link: kubelet's file is a regular file.
func (r *Reader) file() ([]byte, error) {
	f, err := os.OpenFile(r.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > MaxBytes:
		return nil, fmt.Errorf("%d bytes, more than %d", info.Size(), MaxBytes)
	}
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// isEqual reports whether two states are equal.
func isEqual(a, b *State) bool {
	if a.Policy != b.Policy || !a.Default.Equals(b.Default) || len(a.Assignments) != len(b.Assignments) {
		return false
	}
	for i, g := range a.Assignments {
		if o := b.Assignments[i]; g.PodUID != o.PodUID || g.Container != o.Container || !g.CPUs.Equals(o.CPUs) {
			return false
		}
	}
	return true
}
