// Package colocation measures Polder's purpose: how long a service's requests take beside a batch job, and how much CPU the batch job
// gets, alone, beside an unmanaged job, beside one that a line of shell made idle, and under each of Polder's policies, all in one run.
// `make bench-colocation` runs it and writes docs/colocation.md.
package colocation

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"polder/tests/await"
	"polder/tests/group"
)

// service is a real service with its client.
type service struct {
	name, protocol string
	start          func(b *testing.B, g *group.Group, dir, port string)
}

// services are what is measured. Each listens on loopback.
var services = []service{
	{"nginx, compressing pages of 48 KB", "http", startNginx},
	{"redis, 100 commands a request", "redis", func(b *testing.B, g *group.Group, dir, port string) {
		startRedis(b, g, dir, port, "--appendonly", "no")
	}},
	{"redis, each write on the disk", "set", func(b *testing.B, g *group.Group, dir, port string) {
		// Redis would replace its file whenever that has doubled: in each round beside the same methods, and where the filesystem discards
		// deleted blocks the disk then does nothing else for 20 ms.
		startRedis(b, g, dir, port, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	}},
}

// startNginx has one worker a CPU, and a page of words that the service compresses for each request.
func startNginx(b *testing.B, g *group.Group, dir, port string) {
	b.Helper()
	var page bytes.Buffer
	for i := 0; page.Len() < 48<<10; i++ {
		fmt.Fprintf(&page, "<p>line %d of a page: %x %x %x</p>\n", i, i*2654435761, i*40503, i*i)
	}
	config := fmt.Sprintf(`daemon off;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log;
worker_processes %[3]d;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	types { text/html html; }
	gzip on; gzip_comp_level 6; gzip_min_length 100;
	server { listen 127.0.0.1:%[2]s; root %[1]s; }
}
`, dir, port, runtime.NumCPU())
	for name, data := range map[string][]byte{"page.html": page.Bytes(), "nginx.conf": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	g.Run(b, fmt.Sprintf("exec nginx -c %s/nginx.conf", dir))
}

func startRedis(b *testing.B, g *group.Group, dir, port string, options ...string) {
	b.Helper()
	g.Run(b, fmt.Sprintf("exec redis-server --port %s --bind 127.0.0.1 --dir %s --save '' %s >%[2]s/redis.log", port, dir, strings.Join(options, " ")))
}

// job is a batch job: a shell script, with the given number of processes.
type job struct {
	name   string
	always bool // beside every service
	script func(processes int, dir string) string
}

// jobs are what runs beside the services: twice as many processes as there are CPUs.
var jobs = []job{
	stressor("matrix", "CPU", "", true),
	stressor("stream", "memory bandwidth", "", false),
	stressor("vm", "page faults", "--vm-bytes 64m", false),
	stressor("fork", "new processes", "", false),
	stressor("hdd", "writes", "--hdd-bytes 64m", true),
	{"xz", false, func(n int, dir string) string {
		return fmt.Sprintf("for i in $(seq %d); do while :; do xz -k -c -6 /usr/bin/stress-ng >/dev/null; done & done; wait", n)
	}},
}

func stressor(name, of, options string, always bool) job {
	return job{"stress-ng --" + name + ", " + of, always, func(n int, dir string) string {
		return fmt.Sprintf("exec stress-ng --quiet --temp-path %s --%s %d %s", dir, name, n, options)
	}}
}

// build compiles the client.
func build(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "load")
	if out, err := exec.Command("go", "build", "-o", path, "./load").CombinedOutput(); err != nil {
		b.Fatalf("build the client: %v\n%s", err, out)
	}
	return path
}

// awaitService waits until a program accepts connections.
func awaitService(b *testing.B, client, protocol, address string) {
	b.Helper()
	await.Until(b, 30*time.Second, "the service responds", func() string {
		out, err := exec.Command(client, "-protocol", protocol, "-address", address, "-rate", "10", "-for", "100ms").Output()
		if err != nil || bytes.Contains(out, []byte(`"errors":1`)) {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
}
