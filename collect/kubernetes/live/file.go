package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"polder/collect/kubernetes"
	"polder/lib/config"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// maxFile bounds the file of pods: 5,000 pods of a cluster have some 50 MiB.
const maxFile = 512 << 20

// File is a file with pods, as kubectl get pods -o json prints them: a list, or one pod. It is read again when it changes.
type File struct {
	path, node string
	reading    kubernetes.Reading
	log        *slog.Logger
	now        func() time.Time

	mu      sync.Mutex
	pods    []*kubernetes.Pod
	version uint64
	err     error // of the last reading
	read    time.Time
}

// OpenFile reads the file and begins to watch it until ctx ends. Pods of other nodes are left out.
func OpenFile(ctx context.Context, path, node string, reading kubernetes.Reading, log *slog.Logger, now func() time.Time) (*File, error) {
	f := &File{path: path, node: node, reading: reading, log: log, now: now}
	if err := config.Watch(ctx, path, log, f.load, func() { _ = f.load() }); err != nil {
		return nil, err
	}
	return f, nil
}

// load reads the file. What it read before stays if that fails.
func (f *File) load() error {
	pods, others, err := f.parse()
	if err == nil && len(pods) == 0 && others > 0 {
		f.log.Warn("none of the file's pods is on this node", "path", f.path, "pods", others, "node", f.node)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err != nil {
		return err
	}
	f.pods, f.read = pods, f.now()
	f.version++
	return nil
}

// parse reads the file, and counts the pods of other nodes.
func (f *File) parse() (pods []*kubernetes.Pod, others int, err error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, 0, fmt.Errorf("read pods: %w", err)
	}
	defer in.Close()
	err = eachPod(bufio.NewReader(io.LimitReader(in, maxFile)), func(o map[string]any) {
		p := f.reading.Pod(o)
		if p.NodeName != f.node {
			others++
			return
		}
		pods = append(pods, p)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read pods: %s: %w", f.path, err)
	}
	return pods, others, nil
}

// eachPod calls pod for each pod of a list, one by one, so that a large list takes little memory, or for the single pod.
func eachPod(in io.Reader, pod func(map[string]any)) error {
	d := json.NewDecoder(in)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(errNoPods, err)
	}
	whole := map[string]any{}
	listed := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key != "items" {
			var v any
			if err := d.Decode(&v); err != nil {
				return err
			}
			whole[fmt.Sprint(key)] = v
			continue
		}
		t, err := d.Token()
		if listed = err == nil && (t == nil || t == json.Delim('[')); !listed {
			return errors.Join(errNoPods, err)
		}
		if t == nil { // kubelet's own list, if it has no pods
			continue
		}
		for d.More() {
			var o map[string]any
			if err := d.Decode(&o); err != nil {
				return err
			}
			if kind, ok := o["kind"]; ok && kind != "Pod" { // the members of a PodList have no kind
				return fmt.Errorf("%w; a %v is among them", errNoPods, kind)
			}
			pod(o)
		}
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w; something follows the first", errNoPods)
	}
	switch {
	case listed && (whole["kind"] == "List" || whole["kind"] == "PodList"):
	case whole["kind"] == "Pod":
		pod(whole)
	default:
		return errNoPods
	}
	return nil
}

var errNoPods = errors.New("want a list of pods or one, as kubectl get pods -o json prints it")

// PodsVersion changes whenever Pods does.
func (f *File) PodsVersion() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// Pods are the node's pods.
func (f *File) Pods() []*kubernetes.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods
}

// PodsError is why the file could not be read when it changed last.
func (f *File) PodsError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("%w: the pod list is %s old", f.err, f.now().Sub(f.read).Round(time.Second))
}

// Node is none: a file of pods has no node object.
func (f *File) Node() (*kubernetes.Node, error) { return nil, nil }

// Config is none.
func (f *File) Config() (tick.Raw, error) { return nil, nil }

// SaveConfig returns nil: there is no configuration.
func (f *File) SaveConfig() map[string]*customconfig.Chosen { return nil }

// LoadConfig does nothing.
func (f *File) LoadConfig(map[string]*customconfig.Chosen) {}

// SaveStrategies returns nil: there are no strategies.
func (f *File) SaveStrategies() *sloconfig.Saved { return nil }

// LoadStrategies does nothing.
func (f *File) LoadStrategies(*sloconfig.Saved) {}
