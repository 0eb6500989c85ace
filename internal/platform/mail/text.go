package mail

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const maxName = 80 // most characters of a name in a message

// plainName returns a name from a tenant in a form that is safe in a message: short, on one
// line, and without anything that mail programs turn into a link.
func plainName(name string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(name) {
		switch {
		case n == maxName:
			b.WriteString("…")
			return b.String()
		case r == '.':
			r = '·' // otherwise mail programs would turn example.com into a link
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == ' ', strings.ContainsRune("-_'", r):
		default:
			r = '-' // replaces other characters, such as / and : and @
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// maxWord is the largest number of characters of a word from a tenant, such as the name of a package.
const maxWord = 120

// Word returns a word from a tenant, such as a path, a tag or the name or version of a package, in a form that is safe
// in a message: short, on one line, and without anything that mail programs turn into a link. Dots are kept only
// between digits, so that versions can be read.
func Word(text string) string {
	digit := func(r rune) bool { return '0' <= r && r <= '9' }
	runes := []rune(strings.TrimSpace(text))
	var b strings.Builder
	for i, r := range runes {
		switch {
		case i == maxWord:
			return b.String() + "…"
		case r == '.' && (i == 0 || i+1 == len(runes) || !digit(runes[i-1]) || !digit(runes[i+1])):
			r = '·'
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), strings.ContainsRune(". -_'/+~", r):
		case r == ':' && i+1 < len(runes) && digit(runes[i+1]): // an epoch of a version
		default:
			r = '-'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Report returns the message with the weekly report of a group, which the person can stop with a command. name is the
// path of the group, and body is the report, in which all words from tenants are the results of Word.
func (q *Queue) Report(group resource.UID, to, name, subject, body string) Message {
	text := fmt.Sprintf(`Hello,

this is the report about the findings of "%s" at %s, to which you have subscribed.

%s
The whole report, as a page that can be printed:

  holdfast findings report %s > report.html

You get this message every week. To stop it:

  holdfast findings report unsubscribe %s
`, Word(name), q.cfg.Issuer, body, group, group)
	return Message{
		Organization: group.Root(), To: to, Subject: "Findings of " + Word(name) + ": " + subject,
		Text: text + "\n-- \nSent by Holdfast at " + q.cfg.Issuer + ".\n", Notice: WeeklyReport,
	}
}

func when(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// footer ends every message. It helps a person who did not expect the message to judge it.
func (q *Queue) footer() string {
	return "\n-- \nSent by Holdfast at " + q.cfg.Issuer + ". If you did not expect this message, ignore it.\n"
}

// Invite returns a function that makes the message with the link to an
// invite, for the address in the invite.
func (q *Queue) Invite(i resource.GroupInvite, group, role, code string) func() Message {
	uses := "It works until " + when(i.ExpirationTime)
	if i.SingleUse {
		uses = "It works once, until " + when(i.ExpirationTime)
	}
	text := fmt.Sprintf(`Hello,

you are invited to "%s" at %s, with the role "%s".
To join, open this link:

  %s

%s, and for this address alone. Do not forward it.
`, plainName(group), q.cfg.Issuer, plainName(role), q.cfg.Issuer+"/join?code="+url.QueryEscape(code), uses)
	return func() Message {
		return Message{
			Organization: i.UID.Root(), To: i.Email, Subject: "You are invited to " + plainName(group),
			Text: text + q.footer(), Expire: i.ExpirationTime,
		}
	}
}

// Link returns the message with a one-time link to an account.
func (q *Queue) Link(org resource.UID, to, name, link string, until time.Time) Message {
	text := fmt.Sprintf(`Hello,

an administrator of "%s" at %s has made a link for your account.
To choose a password, open it:

  %s

It works once, until %s. Whoever has the link can sign in as you: do not forward it.
`, plainName(name), q.cfg.Issuer, link, when(until))
	return Message{
		Organization: org, To: to, Subject: "Your account at " + plainName(name), Text: text + q.footer(), Expire: until,
	}
}

// NewDevice returns the message about a sign-in with a browser that the person has not used
// before.
func (q *Queue) NewDevice(org resource.UID, to, name, program, address string, at time.Time) Message {
	text := fmt.Sprintf(`Hello,

somebody has signed in as you at "%s", with a browser that you have not used for that before:

  when     %s
  where    %s
  browser  %s

If that was you, there is nothing to do. If not, end the session at

  %s/account

choose another password, and tell an administrator of the organization.
`, plainName(name), when(at), plainAddress(address), plainName(program), q.cfg.Issuer)
	return Message{
		Organization: org, To: to, Subject: "A new sign-in to your account", Text: text + q.footer(), Notice: NewDevice,
	}
}

// FailingSubscription returns the message to an owner about a subscription of a group whose address, at host, does not
// accept events. name is the name of the group's organization, and log is the address of the delivery log.
func (q *Queue) FailingSubscription(group resource.UID, to, name, host, log string, f resource.Failing) Message {
	kind := FailingWebhook
	if !group.IsRoot() {
		kind = FailingWebhookOfFolder
	}
	text := fmt.Sprintf(`Hello,

"%s" sends events to %s, which has not accepted any since %s.
The last error was: %s.

The delivery log has every attempt. There you can also send events again:

  %s

An event that is not accepted within a day is put aside, until somebody replays it.
`, plainName(name), plainName(host), when(f.Since), plainName(f.Error), log)
	return Message{
		Organization: group.Root(), To: to, Subject: "Events are not accepted by " + plainName(host),
		Text: text + q.footer(), Notice: kind,
	}
}

// AccessNames are the names in a request for a role, for people.
type AccessNames struct{ Requester, Role, Group string }

// lasting returns a duration for people, such as 2h or 1h30m.
func lasting(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// AccessRequest returns the message to a person who may approve a request for a role.
func (q *Queue) AccessRequest(r resource.AccessRequest, to string, n AccessNames) Message {
	reason := "none was given"
	if r.Reason != "" {
		reason = Word(r.Reason)
	}
	text := fmt.Sprintf(`Hello,

"%s" asks for the role "%s" on "%s" at %s, for %s.

  reason  %s

You may approve or deny this request in the console:

  %s/console/access?show=requests

or with a command:

  holdfast access requests approve %s
  holdfast access requests deny %s

If nobody decides, it lapses on %s.
`, plainName(n.Requester), plainName(n.Role), plainName(n.Group), q.cfg.Issuer, lasting(r.Duration), reason,
		q.cfg.Issuer, r.UID, r.UID, when(r.CreateTime.Add(resource.RequestWaits)))
	return Message{
		Organization: r.UID.Root(), To: to, Subject: plainName(n.Requester) + " asks for the role " + plainName(n.Role),
		Text: text + q.footer(), Expire: r.CreateTime.Add(resource.RequestWaits), Notice: AccessRequested,
		Cause: r.Identity,
	}
}

// AccessDecision returns the message to a person whose request for a role was granted or denied.
func (q *Queue) AccessDecision(r resource.AccessRequest, to string, n AccessNames) Message {
	outcome, detail := "denied", "You can ask again, for example with another reason."
	if r.State == resource.AccessGranted {
		outcome, detail = "approved", "You hold the role until "+when(r.ExpireTime)+"."
	}
	text := fmt.Sprintf(`Hello,

your request for the role "%s" on "%s" at %s was %s.
%s

  holdfast access requests show %s
`, plainName(n.Role), plainName(n.Group), q.cfg.Issuer, outcome, detail, r.UID)
	return Message{
		Organization: r.UID.Root(), To: to, Subject: "Your request for the role " + plainName(n.Role) + " was " + outcome,
		Text: text + q.footer(), Notice: AccessDecided,
	}
}

// plainAddress returns a network address with only its digits and separators.
func plainAddress(address string) string {
	kept := strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789abcdefABCDEF.:/", r) {
			return r
		}
		return -1
	}, address)
	return kept[:min(len(kept), 64)]
}
