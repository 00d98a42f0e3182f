package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/report/view"
)

// fill gives every field a value, the same one for the same path, and lists two elements.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Struct:
		if at, ok := reflect.TypeAssert[*time.Time](v.Addr()); ok {
			*at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			return
		}
		for _, field := range v.Fields() {
			fill(field, depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("{}"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.String:
		v.SetString("0-3")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(3 + depth))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(3 + depth))
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(uint64(3 + depth))
	}
}

// Fields that are not decoded for the metrics change nothing in them, and each name is that of a field.
func TestUnreadFieldsAreInNoMetric(t *testing.T) {
	var full tick.Tick
	fill(reflect.ValueOf(&full).Elem(), 0)
	full.V, full.Node = tick.Version, "n"
	full.Sample.Agent, full.Sample.Fleet, full.Eviction.Fleet = nil, nil, nil // of a fleet's ticks alone
	full.Sample.Pods[0].QoS, full.Sample.Pods[1].QoS = tick.QoSShared, tick.QoSReclaimed
	for i := range full.Sample.Pods[0].Containers { // otherwise the service's waiting is unknown
		full.Sample.Pods[0].Containers[i].ThrottledPercent = new(0.0)
	}
	parsed := func() *tick.Line {
		raw, err := tick.Marshal(&full)
		if err != nil {
			t.Fatal(err)
		}
		line, err := tick.ParseLine(raw)
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	line := parsed()
	// In the next tick a pod of the same name has another UID and requests other resources.
	full.Time = full.Time.Add(time.Second)
	full.Sample.Pods[1].UID, full.Sample.Pods[1].Requests = "another", nil
	replaced := parsed()
	sections := []string{tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionNetwork}
	page := func(without ...string) (string, *tick.Tick) {
		x, err := tick.NewDecoder(without...).Decode(line, sections...)
		if err != nil {
			t.Fatal(err)
		}
		later, err := tick.NewDecoder(without...).Decode(replaced, sections...)
		if err != nil {
			t.Fatal(err)
		}
		var m view.Metrics
		m.Add(x)
		first, _ := m.Page()
		m.Add(later)
		second, _ := m.Page()
		return first + second, x
	}
	want, before := page()
	got, after := page(metricsUnread...)
	if got != want {
		t.Errorf("without what is not read:\n%s\nwith it:\n%s", got, want)
	}
	// A metric may have a field's value where another one is absent.
	for field := range reflect.TypeFor[tick.Pod]().Fields() {
		absent := "Pod." + field.Name
		want, _ := page(absent)
		if got, _ := page(append([]string{absent}, metricsUnread...)...); got != want {
			t.Errorf("of pods without %s, without what is not read:\n%s\nwith it:\n%s", field.Name, got, want)
		}
	}
	if strings.Count(want, "\n") < 100 {
		t.Errorf("a page of %d lines", strings.Count(want, "\n"))
	}
	for _, name := range metricsUnread {
		if _, x := page(name); same(t, x, before) {
			t.Errorf("%s is decoded all the same, or there is no such field", name)
		}
	}
	if same(t, before, after) {
		t.Error("all is decoded")
	}
}

func same(t *testing.T, a, b *tick.Tick) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
