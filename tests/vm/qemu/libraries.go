package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// WithLibraries reads a program of the host, as Debian installs it, with the libraries that it is linked to, by the paths at which a guest
// needs them.
func WithLibraries(ctx context.Context, program string) (map[string][]byte, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	listed, err := exec.CommandContext(ctx, "ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", path, err)
	}
	files := map[string]string{path: path}
	for line := range strings.Lines(string(listed)) {
		for word := range strings.FieldsSeq(line) { // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f00)", or the loader's path alone
			if filepath.IsAbs(word) {
				files[word] = word
			}
		}
	}
	out := map[string][]byte{}
	for name, from := range files {
		data, err := os.ReadFile(from) // if it is a link, its target
		if err != nil {
			return nil, err
		}
		out[strings.TrimPrefix(name, "/")] = data
	}
	return out, nil
}
