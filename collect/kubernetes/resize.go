package kubernetes

import "polder/lib/fields"

// resize is the state of a pod that is resized in place. Whoever may resize a pod may wish for any size, so the wish in its specification
// counts only as far as the scheduler counts it.
type resize struct {
	isPending    bool // kubelet has not done it yet
	isInfeasible bool // kubelet will not do it
}

func resizeOf(o object) (r resize) {
	for _, c := range fields.List(o, "status", "conditions") {
		if fields.Text(c, "status") != "True" {
			continue
		}
		switch fields.Text(c, "type") {
		case "PodResizePending":
			r.isPending, r.isInfeasible = true, fields.Text(c, "reason") == "Infeasible"
		case "PodResizeInProgress":
			r.isPending = true
		}
	}
	return r
}

// sizes are the requests of a container or a pod: as its specification wishes, as kubelet has allocated them, and as it has them.
type sizes struct{ wished, allocated, actual list }

// resizableKinds are the first of [amounts]: CPU and memory. The other ones cannot be resized.
const resizableKinds = 2

// sizes reads the requests from a status. What it does not have is as wished, but if the wish is infeasible there is nothing.
func (r resize) sizes(wished list, status object, in string, complain func(string)) sizes {
	s := sizes{wished, wished, wished}
	if !r.isPending {
		return s
	}
	if r.isInfeasible {
		s.allocated = wished.withoutResizable()
	}
	if has := fields.Child(status, "allocatedResources"); has != nil {
		s.allocated = wished.withoutResizable()
		s.allocated.replace(readList(has, in+"allocatedResources", complain))
	}
	s.actual = s.allocated
	if has := fields.Child(status, "resources", "requests"); has != nil {
		s.actual = wished.withoutResizable()
		s.actual.replace(readList(has, in+"requests in the status", complain))
	}
	return s
}

func (l list) withoutResizable() list {
	for i := range resizableKinds {
		l.value[i], l.known[i], l.invalid[i] = 0, false, false
	}
	return l
}

// given returns what a container has been given, which is its own part while the pod's size is not settled.
func (s sizes) given() list {
	s.allocated.max(&s.actual)
	return s.allocated
}

// limits returns the smaller one of each limit that is wished and in force: kubelet cannot lower cpu.cfs_quota_us below a burst that is
// derived from the limit in force, and a wish for more is no limit yet. An infeasible wish does not count.
func (r resize) limits(wished list, status object, in string, complain func(string)) list {
	if !r.isPending {
		return wished
	}
	inForce := readList(fields.Child(status, "resources", "limits"), in+"limits in the status", complain)
	for i := range resizableKinds {
		if wished.known[i] && inForce.known[i] && !r.isInfeasible {
			inForce.value[i] = min(inForce.value[i], wished.value[i])
		}
	}
	wished.replace(inForce)
	return wished
}

// counted returns what the scheduler counts: the largest of the three, without the wish if it is infeasible (PodRequests with
// UseStatusResources in Kubernetes' component-helpers). They are compared for the whole pod: another container's wish may be smaller.
func (r resize) counted(s sizes) list {
	if r.isInfeasible {
		return s.given()
	}
	given := s.given()
	s.wished.max(&given)
	return s.wished
}

// requestSums sum up the containers' sizes, each as [total] does.
type requestSums struct{ wished, allocated, actual total }

func (t *requestSums) add(s sizes, add func(*total, list)) {
	add(&t.wished, s.wished)
	add(&t.allocated, s.allocated)
	add(&t.actual, s.actual)
}

func (t *requestSums) sum() sizes { return sizes{t.wished.sum(), t.allocated.sum(), t.actual.sum()} }
