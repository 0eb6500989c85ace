package registry

import (
	"path"
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A CopiedImage is an image that was copied from one repo to another.
type CopiedImage struct {
	Digest   string `json:"digest"`
	Tag      string `json:"tag,omitempty"`      // of the copy
	FromTag  string `json:"fromTag,omitempty"`  // that it was copied from
	Replaced string `json:"replaced,omitempty"` // what the tag stood for before, if that was something else
	Present  bool   `json:"present,omitempty"`  // the repo had it already
}

// An ImageCopy is what was copied from one repo to another.
type ImageCopy struct {
	Repo      resource.UID  `json:"repo"`
	From      resource.UID  `json:"from"`
	Images    []CopiedImage `json:"images"`
	Manifests int           `json:"manifests"` // that were added
	Bytes     int64         `json:"bytes"`     // that the repo needs more
	Promoted  bool          `json:"promoted,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	By        resource.UID  `json:"by"`
}

// A CopyRequest says what is copied from a repo, and to which.
type CopyRequest struct {
	Group         resource.UID // of the repo that it goes to
	Repo          string
	From          resource.UID
	References    []string
	TagPattern    string
	Tag           string
	WithReferrers bool
	Promote       bool
	Reason        string
}

// MaxCopied is how many manifests are copied at once.
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
			p.Add("tag_pattern", "cannot be given beside references")
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

// Matches reports whether a tag is one of those that are copied.
func (c CopyRequest) Matches(tag string) bool {
	ok, err := path.Match(c.TagPattern, tag)
	return ok && err == nil
}

// TooManyCopied is the problem of a copy of too much.
func TooManyCopied() string {
	return "more than " + strconv.Itoa(MaxCopied) + " manifests would be copied at once: copy some of them first"
}
