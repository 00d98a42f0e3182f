package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
)

// scripts/image makes an image with the Dockerfile's layout, the same bytes each time, in which the programs run.
func TestImage(t *testing.T) {
	t.Parallel()
	controlplane.Need(t) // it may download packages, which is too slow between two edits
	if _, err := exec.LookPath("apt-cache"); err != nil {
		t.Fatal("the image is made of Debian's packages: ", err)
	}
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	run(t, "mkdir", tools)
	for _, tool := range []string{"collect", "advise", "isolate", "evict", "report"} {
		if err := os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\necho "+tool+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var archives []string
	for _, name := range []string{"first.tar", "second.tar"} {
		archives = append(archives, filepath.Join(dir, name))
		run(t, top+"/scripts/image", "-t", "polder:try", "-b", tools, filepath.Join(dir, name))
	}
	run(t, "cmp", archives[0], archives[1])
	unpacked, root := filepath.Join(dir, "unpacked"), filepath.Join(dir, "root")
	run(t, "mkdir", unpacked, root)
	run(t, "tar", "-C", unpacked, "-xf", archives[0])
	// The output is an OCI image, whose blobs are named by their digests, and a docker image.
	blobs, err := os.ReadDir(filepath.Join(unpacked, "blobs/sha256"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("the blobs are %v (%v)", blobs, err)
	}
	for _, blob := range blobs {
		if sum := run(t, "sha256sum", filepath.Join(unpacked, "blobs/sha256", blob.Name())); !strings.HasPrefix(sum, blob.Name()+" ") {
			t.Errorf("the blob %s has the digest %s", blob.Name(), sum)
		}
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Size        int
			Annotations map[string]string
		}
	}
	decode(t, filepath.Join(unpacked, "index.json"), &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/polder:try" {
		t.Fatalf("the index has %+v", index)
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	named := func(digest string) string {
		return filepath.Join(unpacked, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
	}
	text := decode(t, named(index.Manifests[0].Digest), &manifest)
	if len(text) != index.Manifests[0].Size || len(manifest.Layers) != 1 {
		t.Fatalf("the manifest is %s", text)
	}
	if config := read(t, named(manifest.Config.Digest)); !strings.Contains(config, `"Entrypoint":["/usr/local/lib/polder/s6/start"]`) {
		t.Errorf("the image's configuration is %s", config)
	}
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	decode(t, filepath.Join(unpacked, "manifest.json"), &docker)
	if len(docker) != 1 || strings.Join(docker[0].RepoTags, " ") != "polder:try" || filepath.Join(unpacked, docker[0].Config) != named(manifest.Config.Digest) ||
		len(docker[0].Layers) != 1 || filepath.Join(unpacked, docker[0].Layers[0]) != named(manifest.Layers[0].Digest) {
		t.Errorf("docker's manifest is %+v", docker)
	}
	run(t, "tar", "-C", root, "-xf", named(manifest.Layers[0].Digest))
	out := run(t, "chroot", root, "/bin/sh", "-c", `collect && report && cd /tmp && mkfifo x && [ -p x ] &&
		touch heartbeat && /usr/local/lib/polder/s6/alive 15 /tmp/heartbeat && sleep 0 && cp -R /usr/local/lib/polder/s6/service /run/s &&
		for one in s6-svscan s6-supervise s6-svscanctl s6-svc s6-log; do command -v $one; done && s6-svscan -h 2>&1 | head -c 17`)
	if want := "collect\nreport\n/usr/bin/s6-svscan\n/usr/bin/s6-supervise\n/usr/bin/s6-svscanctl\n/usr/bin/s6-svc\n/usr/bin/s6-log\ns6-svscan: usage:"; !strings.HasPrefix(out, want) {
		t.Errorf("the programs in the image print\n%s\nwant\n%s", out, want)
	}
	// What the Dockerfile copies is at the Dockerfile's destination.
	for _, path := range []string{"usr/local/bin/isolate", "usr/local/lib/polder/s6/start", "usr/local/lib/polder/s6/service/isolate/run", "usr/share/doc/polder/LICENSE"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
}

// decode parses a JSON file, and returns its text as well.
func decode(t *testing.T, path string, v any) string {
	t.Helper()
	text := read(t, path)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v: %s", path, err, text)
	}
	return text
}

func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The probes: the age of a heartbeat, and how far it is behind its upstream's.
func TestAlive(t *testing.T) {
	for name, one := range map[string]struct {
		tool, upstream time.Duration // ages; 0 means that there is no file
		args           int           // how many of the two are passed
		alive          bool
		output         string
	}{
		"fresh":                  {tool: 2 * time.Second, args: 1, alive: true},
		"old":                    {tool: 30 * time.Minute, args: 1, output: "the last tick passed 1"},
		"none yet":               {args: 1, output: "no tick has passed yet"},
		"from the future":        {tool: -time.Hour, args: 1, output: "the last tick passed -3"},
		"with its upstream":      {tool: 2 * time.Second, upstream: time.Second, args: 2, alive: true},
		"behind its upstream":    {tool: 30 * time.Minute, upstream: time.Second, args: 2, output: "behind"},
		"waits for its upstream": {tool: time.Hour, upstream: time.Hour - 5*time.Minute, args: 2, alive: true},
		"waits for an upstream that never started": {tool: time.Hour, args: 2, alive: true},
		"none, and upstream continues":             {upstream: time.Second, args: 2, output: "no tick has passed yet"},
		"none, and upstream has stopped":           {upstream: time.Hour, args: 2, alive: true},
		"none, and upstream never started":         {args: 2, alive: true},
		"none, and upstream is from the future":    {upstream: -time.Hour, args: 2, output: "no tick has passed yet"},
		"behind an upstream that has stopped":      {tool: 2 * time.Hour, upstream: time.Hour, args: 2, output: "behind"},
		"ahead of a restarted upstream":            {tool: time.Second, upstream: time.Hour, args: 2, alive: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			now := time.Now()
			args := []string{"900"} // much longer than the test takes on a busy machine
			for i, age := range []time.Duration{one.tool, one.upstream} {
				path := filepath.Join(dir, []string{"tool", "upstream"}[i])
				if age != 0 {
					if err := os.WriteFile(path, nil, 0o644); err != nil {
						t.Fatal(err)
					}
					if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
						t.Fatal(err)
					}
				}
				if i < one.args {
					args = append(args, path)
				}
			}
			out, err := exec.Command(top+"/deploy/s6/alive", args...).CombinedOutput()
			if (err == nil) != one.alive || !strings.Contains(string(out), one.output) {
				t.Errorf("alive returns %v: %s", err, out)
			}
		})
	}
}
