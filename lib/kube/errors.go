package kube

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsNotFound reports whether the object, or its kind, does not exist, or a proxy in front of the API server found nothing: the server
// itself answers for an unknown kind in the same way. [IsMissing] is about one object alone, [Client.IsAbsent] distinguishes a proxy.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) }

// IsMissing reports whether the API server itself says that this object does not exist.
func IsMissing(err error, r Resource, name string) bool {
	var status apierrors.APIStatus
	if !IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == r.Name && details.Name == name
}

// IsAnswer reports whether an HTTP server has answered the request. A 404 without a Status object does not count: a proxy says so of
// everything while it has no API server.
func IsAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !(IsNotFound(err) && apierrors.IsUnexpectedServerError(err))
}

// IsConflict reports whether another client has changed the object or manages its fields, or the object was replaced meanwhile.
func IsConflict(err error) bool { return apierrors.IsConflict(err) }

// IsAlreadyExists reports whether the object to create exists.
func IsAlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }

// IsForbidden reports whether the client has no permission, or the server does not know the client.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// IsInvalid reports whether the server rejects the object as invalid, so that sending it again is useless.
func IsInvalid(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// IsUnknownField reports whether the server's kind lacks a field of the object, whose CRD is of another version.
func IsUnknownField(err error) bool {
	return strings.Contains(err.Error(), "field not declared in schema")
}

// manyBudgets is the text of an API server's internal error about a pod that several disruption budgets select.
const manyBudgets = "more than one PodDisruptionBudget"

// IsDisruptionBudget reports whether one or several pod disruption budgets refused an eviction.
func IsDisruptionBudget(err error) bool {
	if apierrors.IsTooManyRequests(err) {
		return apierrors.HasStatusCause(err, "DisruptionBudget")
	}
	return IsServerError(err) && strings.Contains(err.Error(), manyBudgets)
}

// IsTooManyRequests reports whether the server demands fewer requests, or a disruption budget refuses.
func IsTooManyRequests(err error) bool { return apierrors.IsTooManyRequests(err) }

// IsUnreachable reports whether the API server itself did not respond.
func IsUnreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
	}
	var network net.Error
	var address *url.Error
	return errors.As(err, &network) || errors.As(err, &address)
}

// IsServerError reports whether the server failed, so that a later attempt may succeed.
func IsServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500
}

// RetryAfter returns how long the server demands to wait, 0 if it does not.
func RetryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// Reason returns the server's one-word reason ("NotFound", "Invalid"), empty if there is none.
func Reason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return ""
}

// Cause returns an error's text without the request's address, which the message around it makes redundant.
func Cause(err error) string {
	if address, ok := errors.AsType[*url.Error](err); ok {
		return address.Err.Error()
	}
	return err.Error()
}
