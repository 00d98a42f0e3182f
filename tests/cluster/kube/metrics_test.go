package kube

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"polder/lib/kube"
	"polder/lib/metrics"
	"polder/tests/cluster/controlplane"
)

// value is a sample of the page, -1 if there is none.
func value(t *testing.T, s *metrics.Set, series string) float64 {
	t.Helper()
	r, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(page)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The metrics have the requests to the API server by result, their duration, and for how long a watch has been silent.
func TestMetricsOfTheAPIServer(t *testing.T) {
	c := controlplane.Shared(t)
	namespace := c.OwnNamespace()
	s := metrics.New("report", "test")
	if err := s.Serve("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kube.Observe(s.API())
	client := open(t, c.Kubeconfig())

	if _, err := client.Create(t.Context(), configMaps, namespace, configMap(namespace, "counted", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), configMaps, namespace, configMap(namespace, "counted", "1")); !kube.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w := kube.Start(t.Context(), client, kube.Selection{Resource: configMaps, Namespace: namespace}, time.Now, valueOf)
	if err := w.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	for series, least := range map[string]float64{
		`polder_api_requests_total{code="201",method="POST",tool="report"}`:                 1,
		`polder_api_requests_total{code="409",method="POST",tool="report"}`:                 1,
		`polder_api_requests_total{code="200",method="GET",tool="report"}`:                  1,
		`polder_api_request_duration_seconds_count{method="POST",tool="report"}`:            2,
		`polder_api_request_duration_seconds_bucket{method="POST",tool="report",le="+Inf"}`: 2,
		`polder_api_rate_limiter_seconds_count{tool="report"}`:                              2,
	} {
		if got := value(t, s, series); got < least {
			t.Errorf("%s is %v, want %v or more", series, got, least)
		}
	}
	const silence = `polder_watch_silence_seconds{resource="configmaps",tool="report"}`
	if got := value(t, s, silence); got != 0 {
		t.Errorf("the watch has been silent for %v s, and its server is there", got)
	}
	c.StopAPIServer()
	c.Eventually(controlplane.Soon, "the metric has for how long the watch has been silent", func() string {
		if got := value(t, s, silence); got < 2 {
			return strconv.FormatFloat(got, 'f', -1, 64) + " s"
		}
		return ""
	})
	c.Eventually(controlplane.Soon, "the metric has the requests without an answer", func() string {
		if got := value(t, s, `polder_api_requests_total{code="<error>",method="GET",tool="report"}`); got < 1 {
			return strconv.FormatFloat(got, 'f', -1, 64)
		}
		return ""
	})
	c.StartAPIServer()
	c.Eventually(controlplane.Soon, "the watch is heard again", func() string {
		if got := value(t, s, silence); got != 0 {
			return strconv.FormatFloat(got, 'f', -1, 64) + " s"
		}
		return ""
	})
}
