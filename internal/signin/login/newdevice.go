package login

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	deviceCookie = "hf_device"
	sealedDevice = "device"
	maxPeople    = 8 // greatest number of people that a browser remembers
)

// peopleOf returns digests of the people who have signed in with the browser of a request,
// the latest first. The cookie gives no access. It only shows for whom the browser is not a
// new device.
func (s *Service) peopleOf(r *http.Request) (people []string) {
	if b, ok := s.site.OpenCookie(r, deviceCookie, sealedDevice); !ok || json.Unmarshal(b, &people) != nil {
		return nil
	}
	return people
}

func personDigest(identity resource.UID) string {
	return base64.RawURLEncoding.EncodeToString(signindb.Digest("device " + string(identity))[:12])
}

// rememberDevice records in the browser that a person has signed in with it. It does nothing if
// the server sends no mail, because only mailNewDevice uses the record.
func (s *Service) rememberDevice(w http.ResponseWriter, r *http.Request, identity resource.UID) {
	if s.cfg.Mail == nil {
		return
	}
	me := personDigest(identity)
	people := append([]string{me}, slices.DeleteFunc(s.peopleOf(r), func(p string) bool { return p == me })...)
	b, err := json.Marshal(people[:min(len(people), maxPeople)])
	if err != nil {
		return // cannot happen; the cookie is optional in any case
	}
	http.SetCookie(w, s.site.SealedCookie(deviceCookie, sealedDevice, b, knownLife))
}

// mailNewDevice returns the changes that queue a message about a sign-in with a new browser,
// for the transaction of the sign-in. It returns nothing if the person has used the browser
// before or was just registered. The message goes to the e-mail address of the account, or to
// the address that the provider has verified.
func (s *Service) mailNewDevice(
	r *http.Request, f *flow, arrival resource.SignIn, n resource.Session, landing resource.SignInResult,
) ([]func(*store.Tx) error, error) {
	to := landing.Identity.Email
	if arrival.Voucher == "" {
		to = arrival.Email
	}
	if s.cfg.Mail == nil || landing.New || f.Method == resource.BySetUp || to == "" || n.Home == "" ||
		slices.Contains(s.peopleOf(r), personDigest(n.Identity)) {
		return nil, nil
	}
	org, err := s.admin.OrganizationName(r.Context(), n.Home)
	if err != nil {
		return nil, err
	}
	return s.cfg.Mail.With(r.Context(), func() mail.Message {
		return s.cfg.Mail.NewDevice(n.Home.Root(), to, org, input.Program(n.Agent), n.Address, n.CreateTime)
	}), nil
}
