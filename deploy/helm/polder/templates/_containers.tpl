{{- /*
A container a tool. FIFO n is in a volume of its own, pipe-n, which the tools at its two ends mount and nobody else: report
cannot write what isolate reads. Each tool's heartbeat lies beside its output.
*/ -}}
{{- define "polder.tool" -}}
{{- $v := .root.Values }}
- name: {{ .tool }}
  image: {{ include "polder.image" .root }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  command:
  - /usr/local/bin/{{ .tool }}
  {{- range .args }}
  - {{ . }}
  {{- end }}
  - --heartbeat
  - {{ .beat }}
  env:
  {{- include "polder.common-env" .root | trim | nindent 2 }}
  {{- with include "polder.env" (dict "root" .root "tool" .tool) | trim }}{{ nindent 2 . }}{{ end }}
  securityContext:
    {{- include "polder.confined" .root | trim | nindent 4 }}
    {{- if .user }}
    runAsUser: {{ .user }}
    runAsGroup: {{ .user }}
    runAsNonRoot: true
    {{- else }}
    runAsUser: 0
    runAsGroup: 0
    {{- end }}
  {{- if eq .tool "report" }}
  readinessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ $v.heartbeat.readySeconds | quote }}, {{ .beat }}]}
    periodSeconds: {{ $v.heartbeat.periodSeconds }}
    timeoutSeconds: 10
  {{- end }}
  {{- /* advise waits where isolate does not read, and its heartbeat stands still: to restart it would mend nothing. */ -}}
  {{- if ne .tool "advise" }}
  livenessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ $v.heartbeat.restartSeconds | quote }}, {{ .beat }}{{ with .upstream }}, {{ . }}{{ end }}]}
    initialDelaySeconds: 30
    periodSeconds: {{ $v.heartbeat.periodSeconds }}
    timeoutSeconds: 10
    terminationGracePeriodSeconds: 5 # who hangs does not hear SIGTERM
  {{- end }}
  {{- with include "polder.metrics-ports" (dict "root" .root "tools" (list .tool)) | trim }}{{ nindent 2 . }}{{ end }}
  resources: {{- toYaml (index $v .tool).resources | nindent 4 }}
{{- end }}

{{- define "polder.containers" -}}
initContainers:
# FIFOs that their group may open, whatever the umask of the tools.
- name: fifos
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/bin/sh, -c, 'for n in 1 2 3 4; do [ -p /run/polder/$n/ticks.fifo ] || mkfifo -m 0660 /run/polder/$n/ticks.fifo; done']
  securityContext: {runAsUser: 65532, runAsGroup: 65532, runAsNonRoot: true, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, privileged: false, capabilities: {drop: [ALL]}}
  resources: {requests: {cpu: 1m, memory: 8Mi}, limits: {memory: 32Mi}}
  volumeMounts:
  {{- range list "1" "2" "3" "4" }}
  - {name: pipe-{{ . }}, mountPath: /run/polder/{{ . }}}
  {{- end }}
containers:
# Root, for cpu_manager_state is root's; without capabilities, and with cgroups to read alone.
{{ include "polder.tool" (dict "root" . "tool" "collect" "beat" "/run/polder/1/collect" "args" (list "--output" "fifo:/run/polder/1/ticks.fifo" "--state" "/var/lib/polder/collect.json")) | trim }}
  volumeMounts:
  {{- include "polder.cgroups-read-only" . | trim | nindent 2 }}
  {{- with include "polder.resctrl-mount" (dict "root" . "readOnly" true) | trim }}{{ nindent 2 . }}{{ end }}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: pipe-1, mountPath: /run/polder/1}
  - {name: state-collect, mountPath: /var/lib/polder}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
{{ include "polder.tool" (dict "root" . "tool" "advise" "user" 65532 "beat" "/run/polder/2/advise" "upstream" "/run/polder/1/collect" "args" (list "--input" "fifo:/run/polder/1/ticks.fifo" "--output" "fifo:/run/polder/2/ticks.fifo" "--state" "/var/lib/polder/advise.json")) | trim }}
  volumeMounts:
  - {name: pipe-1, mountPath: /run/polder/1}
  - {name: pipe-2, mountPath: /run/polder/2}
  - {name: state-advise, mountPath: /var/lib/polder}
# The only one that may write cgroups: root owns their files, and needs no capability to write them. No token.
{{ include "polder.tool" (dict "root" . "tool" "isolate" "beat" "/run/polder/3/isolate" "upstream" "/run/polder/2/advise" "args" (list "--input" "fifo:/run/polder/2/ticks.fifo" "--output" "fifo:/run/polder/3/ticks.fifo" "--journal" "/var/lib/polder/isolate.journal")) | trim }}
  volumeMounts:
  - {name: cgroups, mountPath: /sys/fs/cgroup}
  {{- with include "polder.resctrl-mount" (dict "root" .) | trim }}{{ nindent 2 . }}{{ end }}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: pipe-2, mountPath: /run/polder/2}
  - {name: pipe-3, mountPath: /run/polder/3}
  - {name: state, mountPath: /var/lib/polder}
{{ include "polder.tool" (dict "root" . "tool" "evict" "user" 65532 "beat" "/run/polder/4/evict" "upstream" "/run/polder/3/isolate" "args" (list "--input" "fifo:/run/polder/3/ticks.fifo" "--output" "fifo:/run/polder/4/ticks.fifo" "--state" "/var/lib/polder/evict.json")) | trim }}
  volumeMounts:
  - {name: pipe-3, mountPath: /run/polder/3}
  - {name: pipe-4, mountPath: /run/polder/4}
  - {name: state-evict, mountPath: /var/lib/polder}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
{{ include "polder.tool" (dict "root" . "tool" "report" "user" 65532 "beat" "/run/polder/report/heartbeat" "upstream" "/run/polder/4/evict" "args" (list "--input" "fifo:/run/polder/4/ticks.fifo")) | trim }}
  volumeMounts:
  - {name: pipe-4, mountPath: /run/polder/4}
  - {name: report, mountPath: /run/polder/report}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
{{- end }}
