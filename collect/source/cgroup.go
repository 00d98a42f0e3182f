package source

import (
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"

	"polder/collect/classify"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// Cgroup finds the cgroups that are containers, by the classification rules, and reads their values. On version 1 they are
// found in the hierarchy that accounts for CPU time; values whose hierarchy lacks the cgroup are absent.
var Cgroup = Source{
	Name: "cgroup",
	Doc:  "use, memory, throttling, cpuset and threads of each container's cgroup; each pod's memory.pressure and memory.events, each service's cpu.pressure and io.pressure; what each pod reads and writes (blkio.throttle, io.stat)",
	New: func(e *Env) Reader {
		return &cgroupReader{env: e}
	},
}

type cgroupReader struct {
	env   *Env
	h     *cgroup.Hierarchy
	saved map[string]CgroupState // of an earlier run, until the cgroup is found
}

// open detects the hierarchies, and logs what version 1 lacks. On a machine without any it is called again at each rescan.
func (c *cgroupReader) open(r *Round) error {
	h, err := cgroup.Detect(c.env.Host.Root())
	if err != nil {
		return err
	}
	numa := r.Topology != nil && len(r.Topology.NUMANodes) > 1
	t := &tree{
		h: h, rules: c.env.Rules, log: c.env.Log, reader: cgroup.NewReader(h, numa),
		nodes: map[string]*node{}, clock: r.Clock, saved: c.saved, env: c.env,
	}
	t.inodes = c.env.Host.Root() == "/"
	c.h, c.env.pods.tree = h, t
	if h.Version("cpu") == 1 && h.Version("memory") != 2 {
		c.env.Log.Warn("this machine has cgroup version 1: services' waiting for a CPU is measured by run delay, " +
			"their waiting for memory and I/O is unknown, and there is no memory.high and no memory.low")
	}
	return nil
}

func (c *cgroupReader) Read(r *Round) error {
	if c.h == nil {
		if !r.Rescan {
			return cgroup.ErrNoCgroups
		}
		if err := c.open(r); err != nil {
			return err
		}
	}
	t := c.env.pods.tree
	t.update(r.Rescan)
	t.read(r)
	if t.batchChanged || r.Rescan {
		t.batchChanged = false
		t.findBatch()
	}
	r.Sample.BatchCgroups = t.batch
	err := errors.Join(t.errs...)
	t.errs = t.errs[:0] // what is found between two rounds is reported by the next one
	return err
}

func (c *cgroupReader) Close() error {
	if c.h == nil {
		return nil
	}
	return c.env.pods.tree.close()
}

func (c *cgroupReader) Save(s *State) {
	if c.h == nil {
		return
	}
	s.Cgroups = map[string]CgroupState{}
	for path, n := range c.env.pods.tree.nodes {
		if n.container != nil {
			s.Cgroups[path] = n.container.save()
		}
	}
}

func (c *cgroupReader) Load(s *State) { c.saved = s.Cgroups }

// tree is the part of the primary hierarchy that can contain pods.
type tree struct {
	h      *cgroup.Hierarchy
	env    *Env
	rules  *classify.Rules
	log    *slog.Logger
	reader *cgroup.Reader
	// memoryReader is that of the pods' own cgroups, nil until there is one.
	memoryReader *cgroup.Reader
	watcher      *cgroup.Watcher // nil while there is none
	clock        *clock
	inodes       bool
	saved        map[string]CgroupState

	nodes map[string]*node
	// changed means that pods or containers were added or removed.
	changed bool
	errs    []error
	removed []*node
	// unwatched is how many cgroups could not be watched since the last rescan began, watchErrorLogged that this was logged.
	unwatched        int
	watchErrorLogged bool

	// batch are the cgroups that contain reclaimed pods and nothing else, and batchChanged means that the list must be updated.
	batch        []string
	batchChanged bool
	// newBatch means that a reclaimed pod was added of which no cgroup above is in batch.
	newBatch bool

	stallsBuf [256]byte // a pressure file has some 130 bytes
	ioBuf     []byte
}

// node is a cgroup that is a pod, a container, or may contain pods.
type node struct {
	path     string
	parent   *node
	children map[string]*node
	rule     *classify.Rule // nil where none matches, and for a pod's containers
	// lists means that its children are listed, isWatched that inotify reports when they change, and hasOthers that some of them are
	// not nodes.
	lists     bool
	isWatched bool
	hasOthers bool
	// inode is that of the directory when its watch began, if it lists.
	inode uint64
	// unnamed are the names of children that are batch by their rule, but are no nodes, because a tick cannot have their names.
	unnamed   []string
	container *container // nil where it is none
	stalls    *stalls    // nil where it is no pod
	io        *podIO     // likewise
	events    *events    // likewise
	memory    *podMemory // nil where it is no pod, or is its only container
}

// isPod reports whether the node is a pod.
func (n *node) isPod() bool { return n.rule.IsPod() }

// isBatch reports whether the node is a reclaimed pod by its rule.
func (n *node) isBatch() bool { return n.isPod() && n.rule.Class == tick.QoSReclaimed }

// update updates the directories that changed, or all of them. Lost events also hide which directories were recreated.
func (t *tree) update(all bool) {
	var changes cgroup.Changes
	if t.watcher != nil {
		changes = t.watcher.Take()
	}
	if changes.Err != nil {
		t.log.Warn("watch cgroups", "error", changes.Err)
	}
	for _, path := range changes.Removed {
		if n := t.nodes[path]; n != nil {
			t.remove(n)
		}
	}
	if all || changes.Lost {
		t.rescanAll()
		return
	}
	for _, path := range changes.Parents {
		if n := t.nodes[path]; n != nil && n.lists {
			t.list(n)
		}
	}
}

func (t *tree) rescanAll() {
	t.unwatched = 0
	t.startWatcher()
	if root := t.nodes["/"]; root == nil {
		t.add(nil, "/")
	} else {
		t.rescan(root)
	}
	if t.watchErrorLogged && t.unwatched == 0 {
		t.watchErrorLogged = false
		t.log.Info("watch cgroups with inotify: all are watched")
	}
}

// startWatcher starts watching. Where that is impossible, the next rescan tries again.
func (t *tree) startWatcher() {
	if t.watcher != nil {
		return
	}
	var err error
	if t.watcher, err = t.h.Watch(t.env.created); err != nil {
		t.watcher = nil
		t.addUnwatched("watch cgroups with inotify: new cgroups are found only by --rescan", err)
	}
}

// addUnwatched counts what cannot be watched, and logs the first error until all are watched.
func (t *tree) addUnwatched(message string, err error) {
	t.unwatched++
	if !t.watchErrorLogged {
		t.watchErrorLogged = true
		t.log.Warn(message, "error", err)
	}
}

func (t *tree) rescan(n *node) {
	if !n.lists {
		return
	}
	switch inode := t.inode(n.path); {
	case n.inode == 0:
		n.inode = inode
	case inode != 0 && inode != n.inode && n.parent != nil: // it was recreated, and the watch ended with the old one
		t.remove(n)
		t.list(n.parent)
		return
	}
	t.watch(n)
	t.list(n)
	for _, child := range n.children {
		t.rescan(child)
	}
}

// inode is the inode of a cgroup's directory, by which a recreated one is recognized. It is 0 if it is unknown, as in copies of another
// machine's files.
func (t *tree) inode(cgroupPath string) uint64 {
	if !t.inodes {
		return 0
	}
	inode, _ := t.h.Inode(cgroupPath)
	return inode
}

// list adds and removes nodes so that they are the cgroup's present children.
func (t *tree) list(n *node) {
	names, err := t.h.Children("", n.path)
	if cgroup.IsGone(err) && n.parent != nil {
		t.remove(n)
		return
	}
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("list cgroups below %s: %w", n.path, err))
		return
	}
	n.unnamed = nil
	exists := make(map[string]bool, len(names))
	for _, name := range names {
		exists[name] = true
		if n.children[name] == nil {
			t.add(n, name)
		}
	}
	for name, child := range n.children {
		if !exists[name] {
			t.remove(child)
		}
	}
	n.hasOthers = len(n.children)+len(n.unnamed) < len(names)
	t.batchChanged = true
}

// add adds a cgroup and those below it to the tree, if it is a pod or may contain one.
func (t *tree) add(parent *node, name string) {
	n := &node{path: "/", parent: parent}
	switch {
	case parent == nil:
		n.lists = t.rules.Below("/")
	case parent.isPod() && parent.rule.ChildContainers:
		n.path = join(parent.path, name)
		n.container = &container{path: n.path}
	default:
		n.path = join(parent.path, name)
		n.rule = t.rules.Match(n.path)
		n.lists = t.rules.Below(n.path)
		if n.isPod() && n.rule.ChildContainers {
			n.lists = true
		} else if n.isPod() {
			n.container = &container{path: n.path}
		}
	}
	if !n.lists && !n.isPod() && n.container == nil {
		return
	}
	if cgroup.CheckPath(n.path) != nil || !utf8.ValidString(n.path) {
		t.errs = append(t.errs, fmt.Errorf("cgroup %s is left out: a tick cannot have its name", cgroup.ShownPath(n.path)))
		if n.isBatch() {
			parent.unnamed = append(parent.unnamed, name)
		}
		return
	}
	t.nodes[n.path] = n
	if parent != nil {
		parent.children[name] = n
	}
	t.changed = t.changed || n.isPod() || n.container != nil
	t.newBatch = t.newBatch || n.isBatch() && !t.isCovered(n)
	if n.container != nil {
		t.open(n.container)
	}
	if n.isPod() {
		n.stalls, n.io, n.events = newStalls(), &podIO{}, &events{}
		if n.container == nil {
			n.memory = &podMemory{}
		}
		t.openFiles(n)
	}
	if n.lists {
		n.children = map[string]*node{}
		n.inode = t.inode(n.path)
		t.watch(n)
		t.list(n)
	}
}

func join(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// watch watches a cgroup, if it is not watched yet: an earlier attempt may have failed. It must be called before the listing, so that no
// change in between is missed.
func (t *tree) watch(n *node) {
	if t.watcher == nil || n.isWatched {
		return
	}
	err := t.watcher.Add(n.path)
	n.isWatched = err == nil
	if err != nil && !cgroup.IsGone(err) {
		t.addUnwatched("watch a cgroup with inotify: some new cgroups are found only by --rescan "+
			"(fs.inotify.max_user_watches may be too low)", err)
	}
}

func (t *tree) remove(n *node) {
	for _, child := range n.children {
		t.remove(child)
	}
	if n.isWatched {
		t.watcher.Remove(n.path)
	}
	n.closeFiles()
	t.batchChanged = true
	t.changed = t.changed || n.isPod() || n.container != nil
	if t.nodes[n.path] == n {
		delete(t.nodes, n.path)
	}
	if n.parent != nil {
		name := n.path[len(n.parent.path):]
		if name[0] == '/' {
			name = name[1:]
		}
		delete(n.parent.children, name)
	}
}

// openFiles opens those of a pod's files that are not open.
func (t *tree) openFiles(n *node) {
	t.openStalls(n)
	t.openIO(n)
	t.openEvents(n.events, n.path)
	t.openMemory(n.memory, n.path)
}

// closeFiles closes all files of a cgroup.
func (n *node) closeFiles() {
	if n.container != nil {
		n.container.close()
	}
	n.stalls.close()
	n.io.close()
	n.events.close()
	n.memory.close()
}

func openError(cgroupPath string, err error) error {
	if cgroup.IsOutOfFiles(err) {
		err = fmt.Errorf("%w (raise the limit of open files: ulimit -n, LimitNOFILE=)", err)
	}
	return fmt.Errorf("open cgroup %s: %w", cgroupPath, err)
}

func (t *tree) open(c *container) {
	c.group, c.openErr = t.reader.Open(c.path) // a group and an error if some of its files cannot be opened
	c.createdAt = t.clock.Seconds()
	c.inode = t.inode(c.path)
	if s, ok := t.saved[c.path]; ok {
		delete(t.saved, c.path)
		if s.Inode == c.inode {
			c.load(s)
		}
	}
}

// read reads all containers. A removed one is no error; where a new one has its name, the new one is read.
func (t *tree) read(r *Round) {
	t.removed = t.removed[:0]
	allowed := t.env.threadTime()
	t.reader.LimitTime(allowed.hasTime)
	uncounted := 0
	for _, n := range t.nodes {
		if n.container != nil && !t.readContainer(n.container, r) {
			t.removed = append(t.removed, n)
		}
		if c := n.container; c != nil && c.group != nil && c.group.IsCounting() {
			uncounted++
		}
		if n.isPod() {
			if r.Rescan {
				t.openFiles(n)
			}
			t.readStalls(n, r.Clock.Seconds())
			t.readIO(n, r.Clock.Seconds())
			t.readEvents(n.events, r.Clock.Seconds(), ioEvery)
			t.readMemory(n.memory, r.Clock.Seconds())
		}
	}
	if uncounted > 0 {
		t.errs = append(t.errs, fmt.Errorf("not all threads were counted in %s, the next rounds continue: "+
			"containers whose number is up to %s old, or absent: %d",
			allowed.limit, loadMaxAge, uncounted))
	}
	for _, n := range t.removed {
		t.remove(n)
	}
	for _, n := range t.removed {
		if n.parent != nil && t.nodes[n.parent.path] == n.parent {
			t.list(n.parent)
		}
	}
}

// settleSeconds is how long a container may take until its cgroups exist in all hierarchies.
const settleSeconds = 30

// readContainer reports false where the container was removed.
func (t *tree) readContainer(c *container, r *Round) bool {
	if c.group == nil {
		if r.Rescan && c.createdAt < r.Clock.Seconds() {
			t.open(c)
		}
		if c.group == nil {
			t.errs = append(t.errs, openError(c.path, c.openErr))
			return true
		}
	}
	if !c.group.IsComplete() && (r.Rescan || r.Clock.Seconds()-c.createdAt < settleSeconds) {
		if err := c.group.Reopen(); err != nil {
			t.errs = append(t.errs, openError(c.path, err))
		}
	}
	err := c.group.Read(r.Clock.Seconds())
	if errors.Is(err, cgroup.ErrGone) {
		return false
	}
	if err != nil {
		t.errs = append(t.errs, err)
	}
	c.update(r.Clock.Seconds())
	return true
}

func (t *tree) close() error {
	for _, n := range t.nodes {
		n.closeFiles()
	}
	if t.watcher == nil {
		return nil
	}
	return t.watcher.Close()
}
