// Package kube is the client of the cluster, and the only importer of client-go. Objects are plain maps, as decoded from JSON; the
// tools interpret them.
//
// It uses only the dynamic client: the typed one makes each binary 16 MB larger.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Object is an API object as decoded from JSON.
type Object = map[string]any

// Resource is a kind of API objects, by the name in its path: the group is empty for the core group.
type Resource struct{ Group, Version, Name string }

// The resources that Polder uses.
var (
	Pods                           = Resource{"", "v1", "pods"}
	Nodes                          = Resource{"", "v1", "nodes"}
	Events                         = Resource{"events.k8s.io", "v1", "events"}
	ConfigMaps                     = Resource{"", "v1", "configmaps"}
	CustomNodeResources            = Resource{"node.katalyst.kubewharf.io", "v1alpha1", "customnoderesources"}
	KatalystCustomConfigs          = Resource{"config.katalyst.kubewharf.io", "v1alpha1", "katalystcustomconfigs"}
	AdminQoSConfigurations         = Resource{"config.katalyst.kubewharf.io", "v1alpha1", "adminqosconfigurations"}
	EvictionConfigurations         = Resource{"config.katalyst.kubewharf.io", "v1alpha1", "evictionconfigurations"}
	NodeMetrics                    = Resource{"slo.koordinator.sh", "v1alpha1", "nodemetrics"}
	subresourceStatus              = "status"
	defaultTimeout                 = 15 * time.Second
	defaultQPS             float32 = 20
)

// String returns the resource's name in kubectl: customnoderesources.node.katalyst.kubewharf.io.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

func (r Resource) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
}

// Options name the cluster and the client.
type Options struct {
	// Kubeconfig is a file's path; empty means the service account of the pod that this process runs in.
	Kubeconfig string
	// UserAgent names the tool in the server's audit log.
	UserAgent string
	// Timeout bounds one request that is not a watch; 15 s if it is zero.
	Timeout time.Duration
	// QPS bounds requests per second, with a burst of twice as many; 20 if it is zero, no limit if it is negative.
	QPS float32
}

// Client is a client of one API server. It is safe for concurrent use.
type Client struct {
	dynamic dynamic.Interface
	watches dynamic.Interface // without a timeout of the whole request
	paths   rest.Interface    // of the same requests as dynamic, by their paths
	server  string
}

// Open reads the configuration. It sends no request, so that a server that does not respond is no error here.
func Open(o Options) (*Client, error) {
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newClient(config, o)
}

func newClient(config *rest.Config, o Options) (*Client, error) {
	server := withoutPassword(config.Host)
	config.UserAgent = o.UserAgent
	config.QPS = o.QPS
	if o.QPS == 0 {
		config.QPS = defaultQPS
	}
	config.Burst = int(2 * config.QPS)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observing{next} })
	watches, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", server, err)
	}
	config.Timeout = o.Timeout
	if o.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	paths, err := pathsFor(config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", server, err)
	}
	return &Client{dynamic: dynamic.New(paths), watches: watches, paths: paths, server: server}, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not in a cluster's pod: name a kubeconfig (--kubeconfig FILE)")
		}
		if err != nil {
			return nil, fmt.Errorf("the pod's service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// withoutPassword returns a server's address for messages, which end up in ticks, recordings and pages: without a user and a password.
func withoutPassword(server string) string {
	at := strings.LastIndexByte(server, '@')
	if at < 0 {
		return server
	}
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		u.User = nil
		return u.String()
	}
	return server[at+1:]
}

// Server returns the API server's address for messages.
func (c *Client) Server() string { return c.server }

func (c *Client) at(r Resource, namespace string) dynamic.ResourceInterface {
	return c.dynamic.Resource(r.gvr()).Namespace(namespace)
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string) (Object, error) {
	return object(c.at(r, namespace).Get(ctx, name, metav1.GetOptions{}))
}

// Create creates an object, or with a subresource ("eviction") posts it there, for the object that its metadata names.
func (c *Client) Create(ctx context.Context, r Resource, namespace string, o Object, subresources ...string) (Object, error) {
	return object(c.at(r, namespace).Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{}, subresources...))
}

// Apply is a server-side apply of an object, or of its subresource ("status"), by a field manager. With force it replaces fields
// of other managers; without it, a conflict is an error for which [IsConflict] is true.
func (c *Client) Apply(ctx context.Context, r Resource, namespace, name string, o Object, manager string, force bool,
	subresources ...string,
) (Object, error) {
	options := metav1.ApplyOptions{FieldManager: manager, Force: force}
	return object(c.at(r, namespace).Apply(ctx, name, &unstructured.Unstructured{Object: o}, options, subresources...))
}

// ApplyStatus is like Apply for the status.
func (c *Client) ApplyStatus(ctx context.Context, r Resource, namespace, name string, o Object, manager string,
	force bool,
) (Object, error) {
	return c.Apply(ctx, r, namespace, name, o, manager, force, subresourceStatus)
}

// Kinds of patches.
const (
	JSONPatch  = string(types.JSONPatchType)
	MergePatch = string(types.MergePatchType)
)

// Patch changes an object, or a subresource of it, by a patch of the kind.
func (c *Client) Patch(ctx context.Context, r Resource, namespace, name, kind string, patch []byte, manager string,
	subresources ...string,
) (Object, error) {
	options := metav1.PatchOptions{FieldManager: manager}
	return object(c.at(r, namespace).Patch(ctx, name, types.PatchType(kind), patch, options, subresources...))
}

// Delete deletes an object if it still has the UID; an empty UID means any. A negative grace period means the object's own.
func (c *Client) Delete(ctx context.Context, r Resource, namespace, name, uid string, graceSeconds int64) error {
	var options metav1.DeleteOptions
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: (*types.UID)(&uid)}
	}
	if graceSeconds >= 0 {
		options.GracePeriodSeconds = &graceSeconds
	}
	return c.at(r, namespace).Delete(ctx, name, options)
}

func object(u *unstructured.Unstructured, err error) (Object, error) {
	if err != nil {
		return nil, err
	}
	return u.Object, nil
}
