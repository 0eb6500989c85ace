package finding

import (
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Stay is a period in which a tag pointed to an image. For an image that is selected by its digest, it is the
// lifetime of the image.
type Stay struct {
	Image       string // digest of the image
	From, Until int64  // in milliseconds; Until is 0 if the period has not ended
	Next        string // digest of the image to which the tag was moved afterwards
	NoFiles     bool   // whether the packages in the image's files are unknown in this repo
}

// Part returns the part of the period that starts at t.
func (y Stay) Part(t int64) Stay {
	y.From = max(y.From, t)
	return y
}

// End returns when and why a match of a package in the image ended. ok is false if the match did not end, or did not
// exist during the stay.
func (y Stay) End(h findingdb.Hit) (c Closing, ok bool) {
	switch {
	case h.Until != 0 && h.Until <= y.From, y.Until != 0 && h.Since >= y.Until, y.Until == 0 && h.Until == 0:
		return c, false
	case h.Until != 0 && (y.Until == 0 || h.Until <= y.Until):
		return Closing{CloseTime: store.FromMS(h.Until), CloseReason: CloseAdvisoryChanged,
			ClosedBy: h.ClosedBy}, true
	}
	return Closing{CloseTime: store.FromMS(y.Until), CloseReason: CloseImageChanged,
		ClosedBy: "image " + y.Next}, true
}

// Ended returns the findings of a package that ended during the stay, or when the stay ended.
func (y Stay) Ended(
	p registry.Package, hits []findingdb.Hit, advisories map[int64]vuln.Advisory,
) (found []Finding) {
	var over []findingdb.Hit
	for _, h := range hits {
		if _, ok := y.End(h); ok {
			over = append(over, h)
		}
	}
	for _, mentions := range ByVulnerability(over, advisories) {
		v := New(registry.ImagePackage{Package: p}, mentions, advisories)
		v.State = StateClosed
		for _, m := range mentions {
			if c, _ := y.End(m.Hit); c.CloseTime.After(v.CloseTime) {
				v.Closing = c
			}
		}
		if from := store.FromMS(y.From); v.FirstSeen.Before(from) {
			v.FirstSeen = from
		}
		found = append(found, v)
	}
	return found
}
