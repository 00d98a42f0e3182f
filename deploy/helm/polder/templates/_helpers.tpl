{{- define "polder.name" -}}
{{- if contains "polder" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-polder" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "polder.labels" -}}
app.kubernetes.io/name: polder
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "polder.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Whether the admission policies are rendered. */ -}}
{{- define "polder.policies" -}}
{{- if or (eq .Values.admissionPolicy "always") (and (eq .Values.admissionPolicy "auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")) }}true{{ end }}
{{- end }}

{{- /* Whether a pod shapes the uplinks. The values of a release of chart 0.1.0, which helm upgrade --reuse-values keeps, have no network. */ -}}
{{- define "polder.shapes-links" -}}
{{- with .Values.network }}{{ if .enabled }}true{{ end }}{{ end }}
{{- end }}

{{- /* Where report reports to, with commas. */ -}}
{{- define "polder.targets" -}}
{{- join "," (.Values.report.to | default (ternary (list "node" "nodemetric") (list "cnr" "node") (eq .Values.policy "koordinator"))) }}
{{- end }}

{{- /* The eviction rules of the policy. */ -}}
{{- define "polder.rules" -}}
{{- if eq .Values.policy "koordinator" }}BEMemoryEvict,BECPUEvict,MemoryAllocatableEvict,CPUAllocatableEvict,MemoryEvict,CPUEvict{{ else }}reclaimed-resource-pressure-eviction-plugin{{ end }}
{{- end }}

{{- /* The scheduler's profile, which is also the name of its file and lease. */ -}}
{{- define "polder.profile" -}}
{{ ternary "koord-scheduler" "katalyst-scheduler" (eq .Values.policy "koordinator") }}
{{- end }}

{{- /* The names of the accounts that have the role of a tool (.tool), with commas: form containers has one a tool, form single one for
all, and those of the tools besides where they are asked for. */ -}}
{{- define "polder.accounts" -}}
{{- $name := include "polder.name" .root -}}
{{- if eq .root.Values.form "containers" -}}
{{ $name }}-{{ .tool }}
{{- else -}}
{{ $name }}{{ if .root.Values.serviceAccount.perTool }},{{ $name }}-{{ .tool }}{{ end }}
{{- end -}}
{{- end }}

{{- /* The same as the subjects of a role's binding. */ -}}
{{- define "polder.subjects" -}}
{{- range splitList "," (include "polder.accounts" .) }}
- {kind: ServiceAccount, name: {{ . }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}

{{- /* The same as the API server knows them, as a list in JSON. */ -}}
{{- define "polder.users" -}}
{{- $users := list }}
{{- range splitList "," (include "polder.accounts" .) }}
{{- $users = append $users (printf "system:serviceaccount:%s:%s" $.root.Release.Namespace .) }}
{{- end }}
{{- toJson $users }}
{{- end }}

{{- /* How kubelet's CPU manager state is read: file, directory or none. true and false are what they were called before. */ -}}
{{- define "polder.kubelet-state" -}}
{{- $state := toString .Values.host.kubeletState -}}
{{ if eq $state "true" }}file{{ else if eq $state "false" }}none{{ else }}{{ $state }}{{ end }}
{{- end }}

{{- /* Kubelet's directory as the tools see it; see polder.kubelet-mount. */ -}}
{{- define "polder.kubelet-root" -}}
{{ ternary "/run/kubelet" .Values.host.kubeletDir (eq (include "polder.kubelet-state" .) "file") }}
{{- end }}

{{- /* A flag's value as the tool reads it: a list with commas between its elements, and a whole number as it was written. */ -}}
{{- define "polder.flag" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{- /* The settings of one tool (.tool) as environment variables: what the chart says, then its flags. .port names the port of its metrics,
where that is not the tool's. */ -}}
{{- define "polder.env" -}}
{{- $v := .root.Values }}
{{- $env := dict }}
{{- if has .tool (list "collect" "isolate") }}
{{- $_ := set $env "kubelet-root" (include "polder.kubelet-root" .root) }}
{{- end }}
{{- if eq .tool "collect" }}
{{- $_ := set $env "in-cluster" "true" }}
{{- $_ := set $env "system-namespace" (printf "kube-system,%s" .root.Release.Namespace) }}
{{- if eq $v.policy "koordinator" }}
{{- $_ := set $env "slo-config" (printf "%s/%s" $v.koordinator.sloConfig.namespace $v.koordinator.sloConfig.name) }}
{{- $_ := set $env "best-effort" "reclaimed" }}
{{- end }}
{{- else if eq .tool "advise" }}
{{- if ne $v.policy "katalyst" }}{{ $_ := set $env "policy" $v.policy }}{{ end }}
{{- if include "polder.shapes-links" .root }}
{{- with $v.network.batchRate }}{{ $_ := set $env "batch-network-rate" . }}{{ end }}
{{- with $v.network.rate }}{{ $_ := set $env "network-rate" . }}{{ end }}
{{- end }}
{{- else if eq .tool "evict" }}
{{- $_ := set $env "action" $v.evict.action }}
{{- $_ := set $env "rules" (include "polder.rules" .root | trim) }}
{{- else if eq .tool "report" }}
{{- $to := include "polder.targets" .root }}
{{- $_ := set $env "to" $to }}
{{- $_ := set $env "output" (ternary "-" "/dev/null" (has "table" (splitList "," $to))) }}
{{- if $v.report.taintNode }}
{{- $_ := set $env "taint-node" "true" }}
{{- end }}
{{- end }}
{{- if $v.metrics.enabled }}
{{- $_ := set $env "metrics-addr" (printf ":%v" (index $v.metrics.ports (.port | default .tool))) }}
{{- end }}
{{- if and $v.dryRun (has .tool (list "isolate" "evict" "report")) }}
{{- $_ := set $env "dry-run" "true" }}
{{- if eq .tool "report" }}
{{- $_ := set $env "to" "table" }}
{{- $_ := set $env "output" "-" }}
{{- $_ := unset $env "taint-node" }}
{{- end }}
{{- end }}
{{- $env = merge (dict) (index $v .tool).flags $env }}
{{- range $flag, $value := $env }}
- {name: {{ printf "POLDER_%s_%s" $.tool $flag | replace "-" "_" | upper }}, value: {{ include "polder.flag" $value | quote }}}
{{- end }}
{{- end }}

{{- /* The ports on which the tools (.tools) answer Prometheus. */ -}}
{{- define "polder.metrics-ports" -}}
{{- $m := .root.Values.metrics }}
{{- if $m.enabled }}
ports:
{{- range .tools }}
- {name: {{ . }}-metrics, containerPort: {{ index $m.ports . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "polder.common-env" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: GOTRACEBACK, value: crash}
{{- range .Values.env }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- /* What no container of the node's pod needs. Roots without capabilities: they own the files that they open, no more. */ -}}
{{- define "polder.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What shapes the links has one capability more. */ -}}
{{- define "polder.confined-network" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL], add: [NET_ADMIN]}
{{- end }}

{{- define "polder.token-mount" -}}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* What automountServiceAccountToken would mount everywhere, for those that speak to the API server. */ -}}
{{- define "polder.token-volume" -}}
- name: api
  projected:
    defaultMode: 0440
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "polder.cgroups-volumes" -}}
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
{{- if .Values.host.resctrl }}
- name: resctrl
  hostPath: {path: /sys/fs/resctrl, type: Directory}
{{- end }}
{{- end }}

{{- /* The host's cgroups for reading. On version 1 every hierarchy is a mount of its own, so read-only must go all the way down. */ -}}
{{- define "polder.cgroups-read-only" -}}
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
  {{- if semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version }}
  recursiveReadOnly: IfPossible
  {{- end }}
{{- end }}

{{- /* Cache ways and memory bandwidth: a mount of its own below sysfs. */ -}}
{{- define "polder.resctrl-mount" -}}
{{- if .root.Values.host.resctrl }}
- {name: resctrl, mountPath: /sys/fs/resctrl{{ if .readOnly }}, readOnly: true{{ end }}}
{{- end }}
{{- end }}

{{- /* What a tool sees of kubelet's directory: a copy of the one file, or all of it. */ -}}
{{- define "polder.kubelet-mount" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
- {name: kubelet-copy, mountPath: /run/kubelet, readOnly: true}
{{- else if eq (include "polder.kubelet-state" .) "directory" }}
# With the host's unmounts: a volume that stayed mounted here could not be detached from the node.
- {name: kubelet, mountPath: {{ .Values.host.kubeletDir }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}

{{- define "polder.kubelet-volumes" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
# Kubelet makes it when it starts. It is never made here: another file in its place would keep kubelet from starting.
- name: kubelet-file
  hostPath: {path: {{ .Values.host.kubeletDir }}/cpu_manager_state, type: File}
- name: kubelet-copy
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- else if eq (include "polder.kubelet-state" .) "directory" }}
- name: kubelet
  hostPath: {path: {{ .Values.host.kubeletDir }}, type: Directory}
{{- end }}
{{- end }}

{{- /* Copies the one file where the tools beside it read it, and follows when kubelet replaces it. It runs as long as they do, and they
start when there is a copy. */ -}}
{{- define "polder.kubelet-reader" -}}
{{- if eq (include "polder.kubelet-state" .) "file" }}
- name: kubelet-state
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/lib/polder/s6/kubelet-state, /host/cpu_manager_state, /run/kubelet/cpu_manager_state]
  restartPolicy: Always
  startupProbe:
    exec: {command: [/bin/sh, -c, 'test -e /run/kubelet/cpu_manager_state']}
    periodSeconds: 1
    timeoutSeconds: 10
    failureThreshold: 60
  securityContext:
    {{- include "polder.confined" . | trim | nindent 4 }}
    # The file is root's, and its owner needs no capability to read it.
    runAsUser: 0
    runAsGroup: 0
  resources: {requests: {cpu: 1m, memory: 4Mi}, limits: {memory: 32Mi}}
  volumeMounts:
  - {name: kubelet-file, mountPath: /host/cpu_manager_state, readOnly: true}
  - {name: kubelet-copy, mountPath: /run/kubelet}
{{- end }}
{{- end }}
