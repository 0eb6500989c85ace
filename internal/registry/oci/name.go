package oci

import (
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// Limits in the specification, in bytes.
const (
	MaxName = 255 // longest name of a repository, and longest media type
	MaxTag  = 128 // longest tag
)

// ValidName reports whether name can be the name of a repository. It consists of the names of the groups and the
// name of the repo, separated by slashes.
func ValidName(name string) bool {
	if len(name) > MaxName {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if !registry.ValidRepoName(part) {
			return false
		}
	}
	return true
}

// CheckGroupNames returns a Problem if groups with these names, each in the one before, cannot be created below
// group.
func CheckGroupNames(group resource.UID, names []string) error {
	if group.Depth()+len(names) > resource.MaxGroupDepth {
		return NewProblem(http.StatusBadRequest, NameInvalid, "groups nest at most %d levels deep", resource.MaxGroupDepth)
	}
	for _, name := range names {
		if err := (resource.Group{Name: name}).Validate(); err != nil {
			return NewProblem(http.StatusBadRequest, NameInvalid, "%.200q is not the name of a group", name)
		}
	}
	return nil
}

// TagOf returns reference if it is a tag, and "" if it is a digest.
func TagOf(reference string) string {
	if strings.Contains(reference, ":") {
		return ""
	}
	return reference
}

// CheckReference returns a Problem if s is neither a digest nor a valid tag.
func CheckReference(s string) error {
	if TagOf(s) == "" {
		_, err := ParseDigest(s)
		return err
	}
	if !registry.ValidTag(s) {
		return BadManifest("%.200q is not a tag", s)
	}
	return nil
}

// ReferrersTag returns the tag of the index in which clients list the referrers of a subject, if a registry lacks the
// referrers endpoint.
func ReferrersTag(subject digest.Digest) string {
	tag := subject.Algorithm().String() + "-" + subject.Encoded()
	return tag[:min(len(tag), MaxTag)]
}
