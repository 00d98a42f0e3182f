// Package image builds the container images of the tests: no test can pull one.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Images that Build makes. The guide's own name is the same image as Stress, so that its YAML works as written.
const (
	Pause  = "registry.local/pause:1"
	Stress = "registry.local/stress:1"
	Guide  = "docker.io/joedval/stress:latest"
)

// busybox is the static one of Debian's package busybox-static.
const busybox = "/bin/busybox"

//go:embed programs/*.c
var programs embed.FS

// Image is a single layer and how to start it.
type Image struct {
	Tags []string
	// Files are regular files by their path, all of them programs; Links symbolic links.
	Files map[string][]byte
	Links map[string]string
	// Entrypoint and Command are as in a Dockerfile.
	Entrypoint, Command []string
}

// Build writes the images' archives to dir, for `ctr images import`, and returns their paths. It needs a C compiler that
// can link statically, and busybox; scripts/setup-cluster installs both.
func Build(ctx context.Context, dir string) ([]string, error) {
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("make the test images: %w: run scripts/setup-cluster", err)
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list busybox's commands: %w", err)
	}
	compiled := map[string][]byte{}
	for _, name := range []string{"pause", "stress"} {
		if compiled[name], err = compile(ctx, dir, name); err != nil {
			return nil, err
		}
	}
	links := map[string]string{}
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" && name != "bash" { // those are files
			links["bin/"+name] = "busybox"
		}
	}
	images := map[string]Image{
		"pause.tar": {Tags: []string{Pause}, Files: map[string][]byte{"pause": compiled["pause"]}, Entrypoint: []string{"/pause"}},
		"stress.tar": {
			Tags:  []string{Stress, Guide},
			Files: map[string][]byte{"bin/stress": compiled["stress"], "bin/busybox": shell, "bin/bash": []byte("#!/bin/sh\nexec sh \"$@\"\n"), "tmp/.keep": nil},
			Links: links, Command: []string{"sleep", "infinity"},
		},
	}
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(images)) {
		path := filepath.Join(dir, name)
		if err := images[name].Write(path); err != nil {
			return nil, fmt.Errorf("make the image %s: %w", path, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// compile builds a static program from programs/NAME.c.
func compile(ctx context.Context, dir, name string) ([]byte, error) {
	source, err := programs.ReadFile("programs/" + name + ".c")
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "gcc", "-static", "-O1", "-s", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o", out, "-lm")
	cmd.Stdin = bytes.NewReader(source)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s.c: %w: %s: run scripts/setup-cluster for the compiler", name, err, text)
	}
	return os.ReadFile(out)
}

// Write writes the image as an archive like `docker save`'s. The same image makes the same bytes.
func (i Image) Write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Command, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": i.Tags, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, part := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := addFile(w, part.name, 0o644, part.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	directories := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if dir := filepath.Dir(name); dir != "." && !directories[dir] {
			directories[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		if err := addFile(w, name, 0o755, i.Files[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: i.Links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return layer.Bytes(), err
}

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
