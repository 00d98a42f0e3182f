package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// pathsFor is the client on which a dynamic one is based.
func pathsFor(config *rest.Config) (rest.Interface, error) {
	config = dynamic.ConfigFor(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientForConfigAndClient(config, client)
}

// IsAbsent reports whether a request failed because the object, or its kind, does not exist. The server's 404 for a kind that it does not
// serve has no Status object, like that of a proxy which has no API server at the moment: such a kind is absent if the server's own list of
// kinds is without it.
func (c *Client) IsAbsent(ctx context.Context, r Resource, err error) bool {
	if !IsNotFound(err) || IsAnswer(err) {
		return IsNotFound(err)
	}
	isServed, err := c.serves(ctx, r)
	if IsForbidden(err) && !apierrors.IsUnexpectedServerError(err) {
		return true // the API server answers again, and this role must not read its list
	}
	return err == nil && !isServed
}

// serves reports whether the server's list of kinds has the kind.
func (c *Client) serves(ctx context.Context, r Resource) (bool, error) {
	if r.Group == "" {
		return true, nil
	}
	version := r.Group + "/" + r.Version
	var groups metav1.APIGroupList
	if err := c.read(ctx, "/apis", "APIGroupList", &groups.TypeMeta, &groups); err != nil {
		return false, err
	}
	isVersion := func(v metav1.GroupVersionForDiscovery) bool { return v.GroupVersion == version }
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return slices.ContainsFunc(g.Versions, isVersion) }) {
		return false, nil
	}
	var kinds metav1.APIResourceList
	if err := c.read(ctx, "/apis/"+version, "APIResourceList", &kinds.TypeMeta, &kinds); err != nil {
		return false, err
	}
	return slices.ContainsFunc(kinds.APIResources, func(k metav1.APIResource) bool { return k.Name == r.Name }), nil
}

// read reads an object of the kind from a path.
func (c *Client) read(ctx context.Context, path, kind string, has *metav1.TypeMeta, into any) error {
	result := c.paths.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	text, err := result.Raw()
	if err != nil {
		return err
	}
	if err = json.Unmarshal(text, into); err == nil && has.Kind != kind {
		err = errors.New("it is of kind " + has.Kind)
	}
	if err != nil {
		return fmt.Errorf("read %s: want an %s: %w", path, kind, err)
	}
	return nil
}
