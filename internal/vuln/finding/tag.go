package finding

import (
	"cmp"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Open is a finding of a tag with the time when it was opened.
type Open struct {
	ID, Package string
	Repo        resource.UID
	Tag         string
	Since       time.Time // when the finding was opened; zero if there is no finding
}

// Before reports whether f is older than o. If both have the same age, the names decide.
func (f Open) Before(o Open) bool {
	return cmp.Or(f.Since.Compare(o.Since), cmp.Compare(f.Repo, o.Repo), cmp.Compare(f.Tag, o.Tag),
		cmp.Compare(f.Package, o.Package), cmp.Compare(f.ID, o.ID)) < 0
}

// An OfTag is a finding of a tag that is open, or was fixed.
type OfTag struct {
	Open
	Severity Severity
	KEV      bool      // whether it is known to be exploited; not set if it was fixed
	Fixable  bool      // whether it has a fix; not set if it was fixed
	Due      time.Time // when it must be fixed; zero if there is no limit, or if it was fixed
	Fixed    time.Time // when it was fixed; zero if it is open
	Source   Source    // the source of the severity
}
