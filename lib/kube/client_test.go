package kube

import (
	"testing"

	"k8s.io/client-go/rest"
)

// The server's address is in messages, which anybody may read who gets a tick, a recording or a page.
func TestServerHasNoPassword(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.0.0.1:6443":                      "https://10.0.0.1:6443",
		"https://admin:secret@10.0.0.1:6443":         "https://10.0.0.1:6443",
		"https://admin:secret@proxy/clusters/a@b":    "https://proxy/clusters/a@b",
		"https://admin:sec%40ret@[2001:db8::1]:6443": "https://[2001:db8::1]:6443",
		"10.0.0.1:6443":                              "10.0.0.1:6443",
	} {
		c, err := newClient(&rest.Config{Host: host}, Options{})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if got := c.Server(); got != want {
			t.Errorf("%s: %s; want %s", host, got, want)
		}
	}
	if got, want := withoutPassword("https://admin:sec/ret@10.0.0.1:x"), "10.0.0.1:x"; got != want {
		t.Errorf("an invalid address: %s; want %s", got, want)
	}
}
