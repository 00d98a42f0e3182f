package source

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"polder/tests/await"
)

// TestFailedWatchIsRetried: a cgroup that could not be watched is watched by the next rescan for which the kernel has room, and only the
// first error is logged until then. A closed watcher refuses every directory, as one at fs.inotify.max_user_watches does.
func TestFailedWatchIsRetried(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/grid/1", "0")
	c := m.collector("rules: [{cgroup: /*/*, class: reclaimed}]")
	var log await.Log
	c.env.Log = slog.New(slog.NewTextHandler(&log, nil))
	logged := func(warnings, resumed int) {
		t.Helper()
		text := log.String()
		w, r := strings.Count(text, "max_user_watches may be too low"), strings.Count(text, "all are watched")
		if w != warnings || r != resumed {
			t.Errorf("logged %d warnings and %d times that watching was resumed; want %d and %d:\n%s", w, r, warnings, resumed, text)
		}
	}
	refuse := func() {
		t.Helper()
		if err := c.env.pods.tree.watcher.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Read(true)
	for i := range 2 {
		top := fmt.Sprintf("/unwatched%d", i)
		m.cgroup(top+"/1", "0")
		refuse()
		c.Read(true)
		c.Read(true)
		logged(i+1, i)
		c.env.pods.tree.watcher = nil // the next one has room
		c.Read(true)
		logged(i+1, i+1)
		m.cgroup(top+"/2", "0")
		await.Until(t, time.Minute, top+"/2 is found without a rescan", await.Is(func() bool {
			c.Read(false)
			return c.env.pods.tree.nodes[top+"/2"] != nil
		}))
	}
}
