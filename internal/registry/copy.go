package registry

import (
	"path"
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A CopiedImage is an image that was copied from one repo to another.
type CopiedImage struct {
	Digest   string `json:"digest"`
	Tag      string `json:"tag,omitempty"`      // name of the tag in the target repo
	FromTag  string `json:"fromTag,omitempty"`  // name of the tag in the source repo
	Replaced string `json:"replaced,omitempty"` // digest to which the tag pointed before; "" if it is the same
	Present  bool   `json:"present,omitempty"`  // the target repo already had the image
}

// An ImageCopy is the result of a copy from one repo to another.
type ImageCopy struct {
	Repo      resource.UID  `json:"repo"`
	From      resource.UID  `json:"from"`
	Images    []CopiedImage `json:"images"`
	Manifests int           `json:"manifests"` // number of added manifests
	Bytes     int64         `json:"bytes"`     // number of bytes by which the target repo has grown
	Promoted  bool          `json:"promoted,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	By        resource.UID  `json:"by"`
}

// A CopyRequest names the images to copy, their repo and the target repo.
type CopyRequest struct {
	Group         resource.UID // group of the target repo
	Repo          string       // name of the target repo
	From          resource.UID
	References    []string
	TagPattern    string
	Tag           string
	WithReferrers bool
	Promote       bool
	Reason        string
}

// MaxCopied is the largest number of manifests in one copy.
const MaxCopied = 200

// Validate reports every field a caller must fix.
func (c CopyRequest) Validate() error {
	var p problems
	if !ValidRepoName(c.Repo) {
		p.Add("repo", "must be the name of a repo, such as app")
	}
	p.RequiredUID("from_repo_uid", c.From)
	p.AtMost("references", len(c.References), MaxCopied, "references")
	for _, r := range c.References {
		if !ValidTag(r) && !resource.ValidDigest(r) {
			p.Add("references", "must be tags or digests")
		}
	}
	switch {
	case c.TagPattern != "":
		p.tagPattern("tag_pattern", c.TagPattern)
		if len(c.References) > 0 {
			p.Add("tag_pattern", "cannot be given together with references")
		}
	case len(c.References) == 0:
		p.Add("references", "is required, or tag_pattern")
	}
	if c.Tag != "" && (len(c.References) != 1 || !ValidTag(c.Tag)) {
		p.Add("tag", "must be a tag, and is for one reference")
	}
	p.Text("reason", c.Reason)
	if c.Reason != "" && !c.Promote {
		p.Add("reason", "is for a promotion")
	}
	return p.Err()
}

// Matches reports whether a tag matches TagPattern.
func (c CopyRequest) Matches(tag string) bool {
	ok, err := path.Match(c.TagPattern, tag)
	return ok && err == nil
}

// TooManyCopied returns the error message for a copy of more than MaxCopied manifests.
func TooManyCopied() string {
	return "more than " + strconv.Itoa(MaxCopied) + " manifests would be copied at once: copy some of them first"
}
