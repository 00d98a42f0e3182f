package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// adminToken is the token of a user in system:masters. The server listens on loopback and lives for minutes.
const adminToken = "polder-test-admin"

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

// prepare chooses ports, and writes keys, certificates and configuration files.
func (p *Plane) prepare() error {
	var err error
	if p.ports, err = choosePorts(); err != nil {
		return err
	}
	if p.ca, err = newAuthority(p.dir); err != nil {
		return err
	}
	for _, one := range []struct {
		file, name string
		groups     []string
	}{
		{"server", "kube-apiserver", nil},
		{"kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}},
	} {
		if _, err := p.ca.issue(one.file, one.name, one.groups...); err != nil {
			return err
		}
	}
	if _, err := accountKeys(p.dir); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("tokens.csv"), []byte(adminToken+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	if err := p.writeKubeconfig(p.Kubeconfig(), "token: "+adminToken); err != nil {
		return err
	}
	for _, component := range []string{"kube-scheduler", "kube-controller-manager"} {
		if _, err := p.KubeconfigForUser("system:" + component); err != nil {
			return err
		}
	}
	if p.client, err = newClient(p.Server(), p.ca, adminToken); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	return p.schedulerConfig()
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (p *Plane) Kubeconfig() string { return p.path("admin.kubeconfig") }

// CA is the path of the certificate of the authority that signs all others.
func (p *Plane) CA() string { return p.ca.path() }

// KubeconfigForUser writes a kubeconfig of a user with a client certificate, and returns its path.
func (p *Plane) KubeconfigForUser(name string, groups ...string) (string, error) {
	file := strings.NewReplacer("system:", "", ":", "-", "/", "-").Replace(name)
	certificate, err := p.ca.issue(file, name, groups...)
	if err != nil {
		return "", err
	}
	path := p.path(file + ".kubeconfig")
	return path, p.writeKubeconfig(path, fmt.Sprintf("client-certificate: %s, client-key: %s", certificate.cert, certificate.key))
}

func (p *Plane) writeKubeconfig(path, user string) error {
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "%s", certificate-authority: %s}}]
users: [{name: test, user: {%s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, p.Server(), p.ca.path(), user), 0o600)
}

func (p *Plane) etcdFlags() []string {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("http://127.0.0.1:%d", p.ports.peer)
	return []string{
		"--data-dir", p.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--heartbeat-interval=10", "--election-timeout=100", // the only member waits that long before it elects itself
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
	}
}

// apiserverFlags leave the admission plugins at their default, and add the one that restricts a kubelet to its own node.
func (p *Plane) apiserverFlags() []string {
	return append([]string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", p.ports.etcd),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.ports.api),
		"--endpoint-reconciler-type=none", // which would refuse a loopback address
		"--service-cluster-ip-range=10.96.0.0/24",
		"--tls-cert-file=" + p.path("server.crt"), "--tls-private-key-file=" + p.path("server.key"),
		"--client-ca-file=" + p.ca.path(), "--token-auth-file=" + p.path("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.path("accounts.pub"), "--service-account-signing-key-file=" + p.path("accounts.key"),
		"--kubelet-client-certificate=" + p.path("kubelet-client.crt"), "--kubelet-client-key=" + p.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + p.path("audit.yaml"), "--audit-log-path=" + p.path("audit.log"),
		"--allow-privileged=true", "--profiling=false",
	}, p.options.APIServerFlags...)
}

// managerFlags are for one instance without health checks.
func (p *Plane) managerFlags() []string {
	return []string{
		"--kubeconfig=" + p.path("kube-controller-manager.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=true", // each controller with its own role, as installers configure it
		"--service-account-private-key-file=" + p.path("accounts.key"), "--root-ca-file=" + p.ca.path(),
		"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h",
	}
}

func (p *Plane) schedulerFlags() []string {
	return []string{"--config=" + p.path("scheduler.yaml"), "--leader-elect=false", "--secure-port=0"}
}

// schedulerConfig writes the configuration with the address of this API server in it. It reads only YAML in block style: it replaces
// top-level sections.
func (p *Plane) schedulerConfig() error {
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	if p.options.SchedulerConfig != "" {
		data, err := os.ReadFile(p.options.SchedulerConfig)
		if err != nil {
			return err
		}
		text = string(data)
	}
	var kept strings.Builder
	dropping := false
	for line := range strings.Lines(text) {
		if line[0] != ' ' && line[0] != '#' && line[0] != '\n' && line[0] != '-' {
			dropping = strings.HasPrefix(line, "clientConnection:") || strings.HasPrefix(line, "leaderElection:")
		}
		if !dropping {
			kept.WriteString(line)
		}
	}
	fmt.Fprintf(&kept, "\nclientConnection:\n  kubeconfig: %s\n", p.path("kube-scheduler.kubeconfig"))
	return os.WriteFile(p.path("scheduler.yaml"), []byte(kept.String()), 0o600)
}

// Ports lie below those that the kernel assigns to clients (from 32768 on by default): a server that is away for a while finds its own
// free, and a client that retries to reach it never gets that very port for its own end, which would connect it to itself.
const lowestPort, portsBelow = 20000, 32000

type ports struct{ etcd, peer, api int }

// choosePorts is a variable so that a test can take a port in between.
var choosePorts = freePorts

func freePorts() (ports, error) {
	free, err := FreePorts(3)
	if err != nil {
		return ports{}, err
	}
	return ports{etcd: free[0], peer: free[1], api: free[2]}, nil
}

// FreePorts finds that many ports of 127.0.0.1 at which no program listens, and which the kernel gives to no client.
func FreePorts(count int) ([]int, error) {
	var free []int
	for range 1000 {
		port := lowestPort + rand.IntN(portsBelow-lowestPort)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // all are held until the last one is found, so they differ
		if free = append(free, port); len(free) == count {
			return free, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports on 127.0.0.1: there are none in 1000 tries", count)
}
