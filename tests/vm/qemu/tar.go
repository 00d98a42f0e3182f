package qemu

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Tar adds the content of a tar archive. All files become root's; devices are left out, because the kernel creates them itself; a
// hard link becomes a symbolic one.
func (a *Archive) Tar(from io.Reader) error {
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		perm := int(h.Mode & 0o7777)
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "" {
				a.directory(name, perm)
			}
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			a.File(name, perm, data)
		case tar.TypeSymlink:
			a.made[name] = true // it may be one to a directory: /bin
			a.Link(name, h.Linkname)
		case tar.TypeLink:
			a.Link(name, path.Clean("/"+h.Linkname))
		case tar.TypeChar, tar.TypeBlock:
		default:
			return fmt.Errorf("%s: unknown type %q", h.Name, h.Typeflag)
		}
	}
}

// directory adds one with its own mode.
func (a *Archive) directory(name string, perm int) {
	a.Directories(path.Dir(name))
	if !a.made[name] {
		a.made[name] = true
		a.entry(name, typeDir|perm, nil)
	}
}
