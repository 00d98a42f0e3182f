package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/processgroup"
)

// stress compiles the program. Without a compiler for it, it skips the test, but not in CI.
func stress(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := compile(t.Context(), dir, "stress"); err != nil {
		if os.Getenv("CI") != "true" && errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return filepath.Join(dir, "stress")
}

func children(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// Each hog is a process with a single thread, and ends with the first process.
func TestStressHogs(t *testing.T) {
	cmd := exec.Command(stress(t), "-c", "2", "--vm", "1", "--vm-bytes", "48M", "--vm-hang", "0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var hogs []string
	resident := func(pid string) int {
		data, _ := os.ReadFile("/proc/" + pid + "/statm") // read again if it is gone
		fields := append(strings.Fields(string(data)), "0", "0")
		pages, _ := strconv.Atoi(fields[1])
		return pages * os.Getpagesize() >> 20
	}
	deadline := time.Now().Add(2 * time.Minute)
	for largest := 0; len(hogs) != 3 || largest < 48; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("hogs %v, the largest has %d MiB", hogs, largest)
		}
		largest = 0
		for _, hog := range children(t, cmd.Process.Pid) {
			largest = max(largest, resident(hog))
		}
		hogs = children(t, cmd.Process.Pid)
	}
	for _, hog := range hogs {
		if threads, err := os.ReadDir("/proc/" + hog + "/task"); err != nil || len(threads) != 1 {
			t.Errorf("hog %s has %d threads (%v)", hog, len(threads), err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := slices.ContainsFunc(hogs, func(hog string) bool { _, err := os.Stat("/proc/" + hog); return err == nil })
		if !left {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("some of %v still run", hogs)
		}
	}
}

// outputUntil runs a program until its output contains want, or it has ended, and returns the output.
func outputUntil(t *testing.T, want, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := processgroup.Command(ctx, program, args...)
	// The hogs that it has forked are killed with it: they would outlive it and use a CPU for ever.
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		output.WriteString(lines.Text() + "\n")
		if strings.Contains(output.String(), want) {
			break
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
	return output.String()
}

func TestStressArguments(t *testing.T) {
	program := stress(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-c 1 -t 1", 0, "dispatching hogs: 1"},
		{"--cpu=1 --timeout=1s --verbose", 0, "dispatching hogs: 1"},
		{"", 1, "Usage"},
		{"-c", 1, "requires an argument"},
		{"-c -1", 1, "not a number"},
		{"-c 1x", 1, "unknown unit"},
		{"--vm 1 --vm-bytes 1T", 1, "unknown unit"},
		{"-c 1 more", 1, "unrecognized option"},
	} {
		out, err := exec.Command(program, strings.Fields(test.args)...).CombinedOutput()
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
		}
		if code != test.code || !strings.Contains(string(out), test.want) {
			t.Errorf("stress %s: exit code %d, %q; want %d and %q", test.args, code, out, test.code, test.want)
		}
	}
	for args, want := range map[string]string{
		"--cpu=1 --verbose": "hog forked", "--vm 1 --vm-bytes 1M --vm-hang 1000 --verbose": "touched 1048576 bytes",
	} {
		if output := outputUntil(t, want, program, strings.Fields(args)...); !strings.Contains(output, want) {
			t.Errorf("stress %s printed %q, want %q", args, output, want)
		}
	}
	cmd := exec.Command(program, "-q", "-c", "1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(children(t, cmd.Process.Pid)) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run succeeded")
	}
}

// An archive has the files that its manifest names, and the same image makes the same bytes.
func TestWrite(t *testing.T) {
	i := Image{
		Tags:  []string{"registry.local/x:1", "docker.io/a/x:latest"},
		Files: map[string][]byte{"bin/x": []byte("program"), "etc/deep/y": []byte("text")}, Links: map[string]string{"bin/sh": "x"},
		Entrypoint: []string{"/bin/x"},
	}
	var archives [2][]byte
	for n := range archives {
		path := filepath.Join(t.TempDir(), "x.tar")
		if err := i.Write(path); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[n], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one image differ")
	}
	parts := unpack(t, archives[0])
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(parts["manifest.json"], &manifest); err != nil || len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, i.Tags) {
		t.Fatalf("manifest %s, %v", parts["manifest.json"], err)
	}
	if _, ok := parts[manifest[0].Config]; !ok {
		t.Errorf("the archive has no %s", manifest[0].Config)
	}
	layer := unpack(t, parts[manifest[0].Layers[0]])
	if string(layer["bin/x"]) != "program" || string(layer["etc/deep/y"]) != "text" || layer["bin/sh"] == nil {
		t.Errorf("the layer has %q", layer)
	}
}

func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	parts := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		parts[header.Name] = append([]byte{}, data...)
	}
}

func TestBuild(t *testing.T) {
	if _, err := os.Stat(busybox); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	stress(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paths, err := Build(ctx, t.TempDir())
	if err != nil || len(paths) != 2 {
		t.Fatalf("Build = %v, %v", paths, err)
	}
}
