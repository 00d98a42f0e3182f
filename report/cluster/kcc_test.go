package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/reconcile"
)

// A tick reports the worst outcome of all objects, and names the one that failed. An object that already has its status is not
// reported; one that no tick names any more is forgotten.
func TestKCCWorst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{session: session(nil), client: new(kube.Client)}
		r.session.Now = time.Now
		fails := errors.New("away")
		target := r.target()
		target.Write = func(_ context.Context, j *kccJob) (bool, error) {
			time.Sleep(time.Millisecond) // the bubble's clock stands while a tick is handled: no write ends before that has
			if j.want.Name == "bad" {
				return false, fails
			}
			j.wrote = j.want.Name != "as-it-is"
			return j.wrote, nil
		}
		r.queue = reconcile.Start(queueOf(t.Context(), r.session, KCC), target)
		expect := func(what, want string, changed bool, names ...string) {
			t.Helper()
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			var verdicts []string
			for _, name := range names {
				verdicts = append(verdicts, `{"namespace":"default","name":"`+name+`","valid":true,"reason":"Normal"}`)
			}
			config := tick.Raw(`{"katalyst":{"customConfigs":[` + strings.Join(verdicts, ",") + `]}}`)
			got := put(t, r, stage.Incoming{Tick: &tick.Tick{V: 1, Node: "n", Time: time.Now(), Sample: &tick.Sample{Config: config}}})
			if text := strings.TrimSpace(got.State + " " + got.Error); text != want || got.Changed != changed {
				t.Errorf("%s: %q, changed %v; want %q, %v", what, text, got.Changed, want, changed)
			}
		}
		expect("all are read", tick.TargetPending, false, "as-it-is", "good")
		expect("one was written", tick.TargetWritten, true, "as-it-is", "good")
		expect("nothing new", tick.TargetUnchanged, false, "as-it-is", "good")
		expect("invalid names", tick.TargetUnchanged, false, "as-it-is", "good", "..", "a/b")
		expect("a third one", tick.TargetPending, false, "as-it-is", "good", "bad")
		expect("it fails", tick.TargetFailed+" default/bad: away", false, "as-it-is", "good", "bad")
		expect("a fourth one, beside it", tick.TargetFailed+" default/bad: away", false, "good", "bad", "other")
		expect("which is written", tick.TargetFailed+" default/bad: away", true, "good", "bad", "other")
		time.Sleep(forgetAfter + 1)
		expect("no tick names it any more", tick.TargetUnchanged, false, "good")
	})
}
