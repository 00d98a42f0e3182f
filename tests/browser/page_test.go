// Package browser tests the chart of docs/colocation.md and the page of report --to html in a real Chromium: the page loads, follows the
// pointer, searches, keeps hostile names as text, and reports no error.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"polder/tests/await"
	"polder/tests/binaries"
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m, &bin)) }

// bin is the directory of the tools.
var bin string

const attack = `</script><script>alert(1)</script>`

// tab is a page in its own browser, with the browser's errors.
type tab struct {
	context.Context
	mu       sync.Mutex
	reported []string
}

func open(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: scripts/setup-browser installs it", err)
	}
	profile, err := os.MkdirTemp("", "polder-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the browser's processes end one after the other, and write until they do
		await.Until(t, 3*time.Minute, "remove the browser's profile", func() string {
			if err := os.RemoveAll(profile); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute),
		chromedp.UserDataDir(profile), chromedp.WindowSize(1400, 1000))
	limit, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(stop)
	allocator, stop := chromedp.NewExecAllocator(limit, options...)
	t.Cleanup(stop)
	x := &tab{}
	x.Context, stop = chromedp.NewContext(allocator)
	t.Cleanup(stop)
	chromedp.ListenTarget(x.Context, func(event any) {
		x.mu.Lock()
		defer x.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			x.reported = append(x.reported, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			x.reported = append(x.reported, fmt.Sprintf("console: %s", e.Args[0].Value))
		case *cdplog.EventEntryAdded:
			x.reported = append(x.reported, e.Entry.Text)
		}
	})
	return x
}

func (x *tab) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(x, actions...); err != nil {
		t.Fatalf("%v; the browser reported %q", err, x.errors())
	}
}

func (x *tab) errors() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reported
}

// until waits until an expression is true.
func (x *tab) until(t *testing.T, expression string) {
	t.Helper()
	var is bool
	x.do(t, chromedp.Poll(expression, &is, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(3*time.Minute)))
}

func (x *tab) text(t *testing.T, selector string) string {
	t.Helper()
	var text string
	x.do(t, chromedp.Text(selector, &text, chromedp.ByQuery))
	return text
}

// pictures keeps screenshots if POLDER_SCREENSHOTS names a directory, for review.
func (x *tab) picture(t *testing.T, name string) {
	t.Helper()
	var image []byte
	x.do(t, chromedp.FullScreenshot(&image, 100))
	if len(image) < 10_000 {
		t.Errorf("the picture %s has %d bytes: is the page empty?", name, len(image))
	}
	if dir := os.Getenv("POLDER_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// recording is the project's recording, with hostile names in it, decided.
func recording(t *testing.T) []byte {
	t.Helper()
	day, err := exec.Command("gzip", "-dc", "../../scripts/demo-48cpu.jsonl.gz").Output()
	if err != nil {
		t.Fatal(err)
	}
	day = bytes.ReplaceAll(day, []byte(`"name":"cache"`), []byte(`"name":"`+attack+`"`))
	for _, tool := range [][]string{{"advise"}, {"evict", "--dry-run", "--reclaimed-cpu-threshold", "0.3", "--reclaimed-tolerance", "5s"}} {
		cmd := exec.Command(filepath.Join(bin, tool[0]), tool[1:]...)
		cmd.Stdin = bytes.NewReader(day)
		if day, err = cmd.Output(); err != nil {
			t.Fatalf("%s: %v", tool[0], err)
		}
	}
	return day
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	x := open(t)
	path := filepath.Join(t.TempDir(), "day.html")
	report := exec.Command(filepath.Join(bin, "report"), "--to", "html", "--output", path)
	report.Stdin = bytes.NewReader(recording(t))
	if out, err := report.CombinedOutput(); err != nil {
		t.Fatalf("report: %v: %s", err, out)
	}
	x.do(t, cdplog.Enable(), chromedp.Navigate("file://"+path))
	x.until(t, `document.querySelectorAll('#charts canvas').length >= 4 && document.querySelectorAll('#pods tr').length === 4`)
	if title := x.text(t, "h1"); title != "node-48" {
		t.Errorf("title %q", title)
	}
	if pods := x.text(t, "#pods"); !strings.Contains(pods, "shop/"+attack) {
		t.Errorf("the table of pods does not have the hostile name as text: %q", pods)
	}

	// The pointer: the reasons are those of its time, on the left before the squeeze and on the right after it.
	hover := func(part float64) string {
		var box []float64
		before := x.text(t, "#at")
		x.do(t, chromedp.Evaluate(`(() => { const b = document.querySelector('#charts .chart').getBoundingClientRect(); return [b.x, b.y, b.width, b.height] })()`, &box))
		x.do(t, chromedp.MouseEvent("mouseMoved", box[0]+50+(box[2]-60)*part, box[1]+box[3]/2))
		x.until(t, fmt.Sprintf(`document.getElementById('at').textContent !== %q`, before))
		return x.text(t, "aside")
	}
	if early := hover(0.2); !strings.Contains(early, "share: 12 CPUs") || !strings.Contains(early, "-> 12 CPUs in whole cores") {
		t.Errorf("at the left:\n%s", early)
	}
	if late := hover(0.9); !strings.Contains(late, "share: 26 CPUs") || !strings.Contains(late, "-> 26 CPUs in whole cores") {
		t.Errorf("at the right:\n%s", late)
	}

	// A click pins the time, the keys step, Escape releases it.
	x.do(t, chromedp.Click("#charts .chart", chromedp.ByQuery))
	x.until(t, `document.getElementById('at').textContent.startsWith('Held at')`)
	held := x.text(t, "#at")
	x.do(t, chromedp.KeyEvent(kb.ArrowRight))
	x.until(t, fmt.Sprintf(`document.getElementById('at').textContent !== %q`, held))
	x.do(t, chromedp.KeyEvent("e"))
	x.until(t, `document.querySelectorAll('#events tr.now').length > 0`)
	if happening := x.text(t, "#happening"); !regexp.MustCompile(`would have been evicted|fell from`).MatchString(happening) {
		t.Errorf("at the next event: %q", happening)
	}

	x.zoom(t)

	// Search.
	x.do(t, chromedp.KeyEvent("/"), chromedp.SendKeys("#search", "spark-2", chromedp.ByQuery))
	x.until(t, `document.querySelectorAll('#pods tr').length === 1`)
	if found := x.text(t, "#pods"); !strings.Contains(found, "batch/spark-2") {
		t.Errorf("found %q", found)
	}
	x.do(t, chromedp.SendKeys("#search", "zzz", chromedp.ByQuery))
	x.until(t, `document.getElementById('events').textContent === 'Nothing.' && document.querySelectorAll('#pods tr').length === 0`)
	x.picture(t, "search")
	x.do(t, chromedp.Evaluate(`document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))`, nil))

	// Light and dark, wide and narrow: nothing is wider than the window.
	for _, width := range []int64{1600, 400} {
		for _, scheme := range []string{"light", "dark"} {
			x.do(t, chromedp.EmulateViewport(width, 1000),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			x.until(t, fmt.Sprintf(`innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches`, width, scheme))
			x.until(t, `document.documentElement.scrollWidth <= innerWidth`)
			x.picture(t, fmt.Sprintf("%s-%d", scheme, width))
		}
	}
	if errors := x.errors(); len(errors) > 0 {
		t.Errorf("the browser reports %q", errors)
	}
}

// zoom drags over the first chart: all of them show that part of the time, until they are reset.
func (x *tab) zoom(t *testing.T) {
	t.Helper()
	axes := func() string {
		t.Helper()
		var text string
		x.do(t, chromedp.Evaluate(`[...document.querySelectorAll('#charts .chart, #more .chart')].map(c => [...c.querySelectorAll('.dygraph-axis-label-x')].map(l => l.textContent).join(' ')).join('|')`, &text))
		return text
	}
	var box []float64
	x.do(t, chromedp.Evaluate(`(() => { scrollTo(0, 0); const b = document.querySelector('#charts .chart').getBoundingClientRect(); return [b.x, b.y, b.width, b.height] })()`, &box))
	y := box[1] + box[3]/2
	whole := axes()
	at := func(part float64) float64 { return box[0] + 50 + (box[2]-60)*part }
	x.do(t,
		chromedp.MouseEvent(input.MousePressed, at(0.4), y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.MouseMoved, at(0.5), y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseMoved, at(0.6), y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseReleased, at(0.6), y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	x.until(t, `!document.getElementById('reset').disabled`)
	zoomed := axes()
	charts := strings.Split(zoomed, "|")
	for _, chart := range charts {
		if zoomed == whole || len(charts) < 3 || chart != charts[0] {
			t.Errorf("the charts' times are %q; want the same part of the time in all, and they were %q", zoomed, whole)
		}
	}
	x.picture(t, "zoomed")
	x.do(t, chromedp.Click("#reset", chromedp.ByQuery))
	x.until(t, `document.getElementById('reset').disabled`)
	if again := axes(); again != whole {
		t.Errorf("the whole time is %q, and was %q", again, whole)
	}
}

// The live page draws new ticks, and reports when the stream has ended.
func TestLivePageInABrowser(t *testing.T) {
	t.Parallel()
	x := open(t)
	report := exec.CommandContext(t.Context(), filepath.Join(bin, "report"), "--to", "html", "--listen", "0")
	in, err := report.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := report.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	for lines := bufio.NewScanner(log); url == "" && lines.Scan(); {
		if m := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	lines := bytes.SplitAfter(recording(t), []byte("\n"))
	x.do(t, cdplog.Enable(), chromedp.Navigate(url))
	x.until(t, `!document.getElementById('empty').hidden`)
	for _, some := range [][][]byte{lines[:1], lines[1:20], lines[20:]} {
		if _, err := in.Write(bytes.Join(some, nil)); err != nil {
			t.Fatal(err)
		}
		at := regexp.MustCompile(`"time":"[^T]*T([0-9:]{8})`).FindAllSubmatch(bytes.Join(some, nil), -1)
		x.until(t, fmt.Sprintf(`document.getElementById('at').textContent === 'At %s'`, at[len(at)-1][1]))
	}
	x.picture(t, "live")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	x.until(t, `document.getElementById('live').textContent === 'the stream has ended'`)
	if err := report.Wait(); err != nil {
		t.Errorf("report: %v", err)
	}
	if errors := x.errors(); len(errors) > 0 {
		t.Errorf("the browser reports %q", errors)
	}
}
