package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrPath is wrapped if a cgroup's path is rejected.
var ErrPath = errors.New("not a cgroup's path")

// CheckPath rejects a cgroup's path that is relative, not in its shortest form, leads out of the hierarchy, or contains
// control characters.
func CheckPath(cgroup string) error {
	if err := CheckAnyNames(cgroup); err != nil {
		return err
	}
	if strings.ContainsFunc(cgroup, isControl) {
		return fmt.Errorf("%w: %q contains a control character", ErrPath, cgroup)
	}
	return nil
}

// CheckAnyNames is like [CheckPath], but accepts control characters: the kernel accepts in a cgroup's name every byte that a file's name
// may have, except a line feed.
func CheckAnyNames(cgroup string) error {
	switch {
	case !strings.HasPrefix(cgroup, "/"):
		return fmt.Errorf("%w: %q does not begin with a slash", ErrPath, cgroup)
	case len(cgroup) > 4000:
		return fmt.Errorf("%w: %d bytes long", ErrPath, len(cgroup))
	case strings.ContainsAny(cgroup, "\x00\n"):
		return fmt.Errorf("%w: %q contains a control character", ErrPath, cgroup)
	case filepath.Clean(cgroup) != cgroup:
		return fmt.Errorf("%w: %q is not in its shortest form (no .., no double or trailing slash)", ErrPath, cgroup)
	}
	return nil
}

func (h *Hierarchy) checkPath(cgroup string) error {
	if h.hasAnyNames {
		return CheckAnyNames(cgroup)
	}
	return CheckPath(cgroup)
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// ShownPath returns a path for a message: quoted if a terminal would not just show its characters, or if it is not UTF-8.
func ShownPath(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return path
	}
	return strconv.Quote(path)
}
