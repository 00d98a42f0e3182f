package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// definition is the part of a CustomResourceDefinition that Established reads.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

// Established waits until the server serves all definitions that were applied, and lists them to clients: kubectl and helm learn the kinds
// from that list, which the server completes later. (`kubectl wait` fails where a definition has no status yet.)
func (c *ControlPlane) Established() {
	c.Helper()
	c.Eventually(Soon, "the definitions are established", func() string {
		var list struct{ Items []definition }
		c.Get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &list)
		discovered, err := c.discovered()
		if err != nil {
			return err.Error()
		}
		for _, crd := range list.Items {
			if !slices.Contains(crd.Status.Conditions, struct{ Type, Status string }{"Established", "True"}) {
				return crd.Metadata.Name
			}
			for _, version := range crd.Spec.Versions {
				name := strings.Join([]string{crd.Spec.Group, version.Name, crd.Spec.Names.Plural}, "/")
				if version.Served && !slices.Contains(discovered, name) {
					return "the server does not list " + name
				}
			}
		}
		return ""
	})
	c.forgetDiscovered()
}

// Undefined waits until the server no longer lists any kind of a group, as after the deletion of its definitions.
func (c *ControlPlane) Undefined(group string) {
	c.Helper()
	c.Eventually(Soon, "the server no longer serves "+group, func() string {
		discovered, err := c.discovered()
		if err != nil {
			return err.Error()
		}
		for _, name := range discovered {
			if strings.HasPrefix(name, group+"/") {
				return "it lists " + name
			}
		}
		return ""
	})
	c.forgetDiscovered()
}

// discovered is the server's list of kinds as kubectl and helm read it: group/version/resource.
func (c *ControlPlane) discovered() ([]string, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct{ Resource string }
			}
		}
	}
	status, answer, err := c.client.send(context.Background(), http.MethodGet, "/apis", "", http.Header{
		"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
	})
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("GET /apis: status %d: %.300s: %w", status, answer, err)
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("GET /apis: %w", err)
	}
	var all []string
	for _, group := range list.Items {
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				all = append(all, strings.Join([]string{group.Metadata.Name, version.Version, r.Resource}, "/"))
			}
		}
	}
	return all, nil
}

// forgetDiscovered removes kubectl's copies of earlier lists: it looks up short names in them.
func (c *ControlPlane) forgetDiscovered() {
	for _, of := range []string{"discovery", "http"} {
		_ = os.RemoveAll(filepath.Join(c.dir, ".kube", "cache", of)) // a kubectl that runs meanwhile may be writing its own
	}
}

// SeenByScheduler waits until the scheduler of this name knows these nodes as they are: it binds a pod without requests to each. The pods
// are in the namespace default, until the test ends.
func (c *ControlPlane) SeenByScheduler(scheduler string, nodes ...string) {
	c.Helper()
	for _, node := range nodes {
		path := "/api/v1/namespaces/default/pods"
		name := "seen-" + node
		c.create(path, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"schedulerName": scheduler, "nodeSelector": map[string]any{"kubernetes.io/hostname": node},
			"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
			"containers": []any{map[string]any{"name": "c", "image": "none"}},
		}})
		c.Cleanup(func() { c.API(http.MethodDelete, path+"/"+name+"?gracePeriodSeconds=0", "") })
		c.Eventually(Soon, scheduler+" knows "+node, func() string {
			var pod struct {
				Spec   struct{ NodeName string }
				Status json.RawMessage
			}
			if c.Get(path+"/"+name, &pod); pod.Spec.NodeName == "" {
				return string(pod.Status)
			}
			return ""
		})
	}
}

// KnowsPriorityClasses waits until the server accepts pods of these priority classes, which it learns of after it has stored them.
func (c *ControlPlane) KnowsPriorityClasses(names ...string) {
	c.Helper()
	for _, name := range names {
		body := fmt.Sprintf(`{"metadata":{"name":"of-class"},"spec":{"priorityClassName":%q,"containers":[{"name":"c","image":"none"}]}}`, name)
		c.Eventually(Soon, "the server knows the priority class "+name, func() string {
			_, answer := c.API(http.MethodPost, "/api/v1/namespaces/default/pods?dryRun=All", body)
			if strings.Contains(string(answer), "no PriorityClass with name") {
				return string(answer)
			}
			return ""
		})
	}
}
