// Package running reads which images run from the documents of other programs.
package running

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// Formats are the formats that Parse reads.
var Formats = []string{"kubernetes", "compose", "list"}

// Parse returns the running images in a document: pods as kubectl prints them in
// JSON, a compose file, or a list of digests and references. If format is "", it detects
// the format. Equal entries are counted together.
func Parse(format string, text []byte) (entries []*findingspb.InventoryEntry, err error) {
	switch cmp.Or(format, formatOf(text)) {
	case "kubernetes":
		entries, err = parsePods(text)
	case "compose":
		entries, err = parseCompose(text)
	case "list":
		entries, err = parseDigests(text)
	default:
		err = fmt.Errorf("%q is not a format; use one of %s", format, strings.Join(Formats, ", "))
	}
	for _, e := range entries {
		if e.GetDigest() == "" && partOfDigest.MatchString(e.GetImage()) {
			return nil, fmt.Errorf("%q ends in a part of a digest: %w", e.GetImage(), errCutOff)
		}
	}
	return countEqual(entries), err
}

// partOfDigest matches a reference with a digest. If digestIn finds no digest in it, the digest is incomplete.
var partOfDigest = regexp.MustCompile(`@|^sha(256|512):`)

var composeKey = regexp.MustCompile(`(?m)^services\s*:`)

// formatOf returns the format that a document seems to have.
func formatOf(text []byte) string {
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return "kubernetes"
	case composeKey.Match(text):
		return "compose"
	}
	return "list"
}

// maxCopies is the largest number of copies that the server accepts.
const maxCopies = 1_000_000

// countEqual merges equal entries, adds up their copies, and keeps the first time at which one was
// started. It keeps the order of their first occurrence.
func countEqual(entries []*findingspb.InventoryEntry) (merged []*findingspb.InventoryEntry) {
	seen := map[string]*findingspb.InventoryEntry{}
	for _, e := range entries {
		key := strings.Join([]string{e.GetNamespace(), e.GetWorkload(), e.GetContainer(), e.GetImage(), e.GetDigest(),
			e.GetPlatform()}, "\x00")
		if have := seen[key]; have != nil {
			have.Copies = min(have.GetCopies()+e.GetCopies(), maxCopies)
			if t := e.GetStartTime(); have.GetStartTime() == nil || t != nil && t.AsTime().Before(have.GetStartTime().AsTime()) {
				have.StartTime = t
			}
			continue
		}
		seen[key] = e
		merged = append(merged, e)
	}
	return merged
}

var digestAtEnd = regexp.MustCompile(`^(?:.*@)?(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// digestIn returns the digest of a reference, or "".
func digestIn(reference string) string {
	if m := digestAtEnd.FindStringSubmatch(reference); m != nil {
		return m[1]
	}
	return ""
}

// A pod contains the fields that are read from a pod.
type pod struct {
	Kind     string
	Metadata struct {
		Namespace, Name string
		Labels          map[string]string
		OwnerReferences []struct {
			Kind, Name string
			Controller bool
		}
	}
	Spec struct {
		Containers, InitContainers, EphemeralContainers []struct{ Name, Image string }
		NodeSelector                                    map[string]string
	}
	Status struct {
		Phase                                                                string
		ContainerStatuses, InitContainerStatuses, EphemeralContainerStatuses []containerStatus
	}
}

// A containerStatus names the image that a container runs.
type containerStatus struct {
	Name, Image, ImageID string
	State                struct {
		Running *struct{ StartedAt time.Time }
	}
}

// started returns when a container was started, or nil if it does not run.
func (c containerStatus) started() *timestamppb.Timestamp {
	if r := c.State.Running; r != nil && !r.StartedAt.IsZero() {
		return timestamppb.New(r.StartedAt)
	}
	return nil
}

// errCutOff is the error for a document that ends in the middle.
var errCutOff = errors.New("the input is cut off: the program that wrote it may have failed")

// cutOff reports whether JSON is invalid because its end is missing.
func cutOff(err error, text []byte) bool {
	bad, ok := errors.AsType[*json.SyntaxError](err)
	return ok && bad.Offset >= int64(len(text))
}

// parsePods reads the output of kubectl get pods -o json: a list, or one pod. It omits
// pods that have ended.
func parsePods(text []byte) (entries []*findingspb.InventoryEntry, _ error) {
	var one pod
	var list struct {
		Items    *[]pod
		Metadata struct {
			Continue           string
			RemainingItemCount int64
		}
	}
	err := errors.Join(json.Unmarshal(text, &one), json.Unmarshal(text, &list))
	if err != nil && cutOff(err, text) {
		return nil, errCutOff
	}
	if err != nil {
		return nil, fmt.Errorf("this is not the output of kubectl get pods -o json: %w", err)
	}
	if list.Metadata.Continue != "" || list.Metadata.RemainingItemCount > 0 {
		return nil, fmt.Errorf("this is only one page of the pods: list them without a limit")
	}
	pods := []pod{one}
	switch {
	case list.Items != nil:
		pods = *list.Items
	case one.Kind != "Pod":
		return nil, fmt.Errorf("this is not the output of kubectl get pods -o json: it has no items")
	}
	for _, p := range pods {
		if p.Kind != "" && p.Kind != "Pod" {
			return nil, fmt.Errorf("a %.60s is not a pod: only pods show which images run", p.Kind)
		}
		if p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			entries = append(entries, p.entries()...)
		}
	}
	return entries, nil
}

// entries returns the images of a pod, including containers that have not started.
func (p pod) entries() (images []*findingspb.InventoryEntry) {
	running := slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses,
		p.Status.EphemeralContainerStatuses)
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers) {
		if !slices.ContainsFunc(running, func(s containerStatus) bool { return s.Name == c.Name }) {
			running = append(running, containerStatus{Name: c.Name, Image: c.Image})
		}
	}
	for _, c := range running {
		image := c.Image
		for _, s := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers) {
			if s.Name == c.Name {
				// The specification has the name that was requested. The status may have another
				// name.
				image = cmp.Or(s.Image, image)
			}
		}
		images = append(images, &findingspb.InventoryEntry{
			Namespace: p.Metadata.Namespace, Workload: p.workload(), Container: c.Name, Image: image,
			Digest: c.digest(image), Platform: p.platform(), Copies: 1, StartTime: c.started(),
		})
	}
	return images
}

// digest returns the digest of the manifest that a container runs. It ignores a digest
// without a repo, because that is the digest of the configuration, which does not
// identify the image in a registry.
func (c containerStatus) digest(image string) string {
	for _, reference := range []string{c.ImageID, image, c.Image} {
		if strings.Contains(reference, "@") {
			if d := digestIn(reference); d != "" {
				return d
			}
		}
	}
	return ""
}

// workload returns the kind and name of the controller that runs a pod. For a replica set
// it returns the deployment.
func (p pod) workload() string {
	for _, o := range p.Metadata.OwnerReferences {
		if !o.Controller && len(p.Metadata.OwnerReferences) > 1 {
			continue
		}
		hash := p.Metadata.Labels["pod-template-hash"]
		if name, ok := strings.CutSuffix(o.Name, "-"+hash); ok && hash != "" && o.Kind == "ReplicaSet" {
			return "Deployment/" + name
		}
		return o.Kind + "/" + o.Name
	}
	return "Pod/" + p.Metadata.Name
}

// platform returns the platform that the pod's node selector requires, or "".
func (p pod) platform() string {
	return strings.Trim(p.Spec.NodeSelector["kubernetes.io/os"]+"/"+p.Spec.NodeSelector["kubernetes.io/arch"], "/")
}

// parseCompose reads a compose file. It omits services that are built, because they have no
// image.
func parseCompose(text []byte) (entries []*findingspb.InventoryEntry, _ error) {
	var file struct {
		Name     string
		Services map[string]struct {
			Image    string
			Build    any
			Platform string
			Scale    *int32
			Deploy   struct{ Replicas *int32 }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("this is not a compose file: %w", err)
	}
	if len(file.Services) == 0 {
		return nil, fmt.Errorf("this is not a compose file: it has no services")
	}
	for name, s := range file.Services {
		switch {
		case s.Image == "" && s.Build == nil:
			return nil, fmt.Errorf("the service %q has neither an image nor a build: %w", name, errCutOff)
		case s.Image == "":
			continue
		}
		copies := int32(1)
		for _, n := range []*int32{s.Scale, s.Deploy.Replicas} {
			if n != nil {
				copies = min(*n, maxCopies)
			}
		}
		if copies > 0 {
			entries = append(entries, &findingspb.InventoryEntry{Namespace: file.Name, Workload: name, Image: s.Image,
				Digest: atDigest(s.Image), Platform: s.Platform, Copies: copies})
		}
	}
	slices.SortFunc(entries,
		func(a, b *findingspb.InventoryEntry) int { return cmp.Compare(a.GetWorkload(), b.GetWorkload()) })
	return entries, nil
}

// atDigest returns the digest after the @ of a reference, or "".
func atDigest(image string) string {
	if strings.Contains(image, "@") {
		return digestIn(image)
	}
	return ""
}

// maxLine is the largest length of a line in a list, in bytes.
const maxLine = 4096

// parseDigests reads a list. Each line is a digest, or a reference with or without a digest.
// A # starts a comment.
func parseDigests(text []byte) (entries []*findingspb.InventoryEntry, _ error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if strings.ContainsAny(line, " \t{}[]\"") || !utf8.ValidString(line) {
			return nil, fmt.Errorf("line %d is neither a digest nor the reference of an image", n)
		}
		e := &findingspb.InventoryEntry{Digest: digestIn(line), Copies: 1}
		if e.GetDigest() != line {
			e.Image = line
		}
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("this is not a list of digests: %w", err)
	}
	return entries, nil
}
