{{- /*
A DaemonSet. .pod is the template of its pods' containers and volumes; .component is the tool that it is named after, if there are
several; .account is its service account, or empty for none; .hostPID and .hostNetwork are those of a pod.
*/ -}}
{{- define "polder.daemonset" -}}
{{- $root := .root }}
{{- $v := .root.Values }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "polder.name" $root }}{{ with .component }}-{{ . }}{{ end }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "polder.labels" $root | nindent 4 }}
    {{- with .component }}{{ printf "app.kubernetes.io/component: %s" . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: polder, app.kubernetes.io/instance: {{ $root.Release.Name }}{{ with .component }}, app.kubernetes.io/component: {{ . }}{{ end }}}
  updateStrategy: {{- toYaml $v.updateStrategy | nindent 4 }}
  template:
    metadata:
      labels:
        {{- include "polder.labels" $root | nindent 8 }}
        {{- with .component }}{{ printf "app.kubernetes.io/component: %s" . | nindent 8 }}{{ end }}
        {{- with $v.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        # Of class system: its CPUs are not limited, and it is never evicted.
        katalyst.kubewharf.io/qos_level: system_cores
        {{- with $v.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      {{- with .account }}
      serviceAccountName: {{ . }}
      {{- end }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with $v.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $v.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .hostPID }}
      # It reads the threads of other pods, which are visible only in the host's pid namespace.
      hostPID: true
      {{- end }}
      {{- if or $v.hostNetwork .hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      terminationGracePeriodSeconds: 20
      {{- with $v.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        seccompProfile: {type: RuntimeDefault}
        {{- if or $v.restore (eq $v.form "containers") }}
        fsGroup: 65532 # the group of the FIFOs and of the token
        {{- end }}
        {{- with $v.host.seLinuxOptions }}
        seLinuxOptions: {{- toYaml . | nindent 10 }}
        {{- end }}
      {{- include .pod $root | trim | nindent 6 }}
{{ end }}
