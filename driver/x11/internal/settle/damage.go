package settle

import (
	"fmt"
	"image"

	"github.com/jezek/xgb/damage"
	"github.com/jezek/xgb/xfixes"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A damaged is a source that the server tells what has been painted on the root window and all windows on it.
//
// The server adds up what is painted in a region of its own, whether anyone asks or not. Of the ways in which it may
// report that (DAMAGE protocol 1.1), the chosen one sends one event until the region has been asked for; the others
// send one for each new rectangle, of which there may be tens of thousands in a second. The event itself is of no use here.
type damaged struct {
	conn   *display.Conn
	damage damage.Damage
	region xfixes.Region // where the server puts what look asks for
}

func openDamage(displayName string) (_ *damaged, err error) {
	conn, err := display.Open(displayName)
	if err != nil {
		return nil, err
	}
	d := &damaged{conn: conn}
	go d.discard()
	if err := d.open(); err != nil {
		conn.Close()
		return nil, err
	}
	return d, nil
}

func (d *damaged) open() error {
	x := d.conn.X
	for _, name := range []string{"XFIXES", "DAMAGE"} {
		if err := d.use(name); err != nil {
			return err
		}
	}
	// The server refuses other requests before it was told these.
	if _, err := xfixes.QueryVersion(x, 2, 0).Reply(); err != nil {
		return display.Err(err)
	}
	if _, err := damage.QueryVersion(x, 1, 1).Reply(); err != nil {
		return display.Err(err)
	}
	var err error
	if d.damage, err = damage.NewDamageId(x); err != nil {
		return display.Err(err)
	}
	if d.region, err = xfixes.NewRegionId(x); err != nil {
		return display.Err(err)
	}
	damage.Create(x, d.damage, d.conn.Root(), damage.ReportLevelNonEmpty)
	xfixes.CreateRegion(x, d.region, nil)
	return nil
}

// use makes an extension known to the connection. The functions of xgb that are there for it also register its events,
// in a table of the whole process that the other connections read without a lock. Without that xgb drops the events,
// which is just what they are good for.
func (d *damaged) use(name string) error {
	r, err := xproto.QueryExtension(d.conn.X, uint16(len(name)), name).Reply()
	if err != nil {
		return display.Err(err)
	}
	if !r.Present {
		return fmt.Errorf("%w: the X server has no %s extension", driver.ErrUnsupported, name)
	}
	d.conn.X.ExtLock.Lock()
	defer d.conn.X.ExtLock.Unlock()
	d.conn.X.Extensions[name] = r.MajorOpcode
	return nil
}

// discard takes events off the queue, until the connection ends: every client is told of each new keyboard map, and a
// queue that nobody empties holds up the replies behind it.
func (d *damaged) discard() {
	for {
		if event, err := d.conn.X.WaitForEvent(); event == nil && err == nil {
			return
		}
	}
}

// look takes over what has been painted. It makes its three requests in one go, so it costs one round trip.
func (d *damaged) look() (changed []image.Rectangle, screen image.Rectangle, err error) {
	damage.Subtract(d.conn.X, d.damage, 0, d.region)
	fetch := xfixes.FetchRegion(d.conn.X, d.region)
	geometry := xproto.GetGeometry(d.conn.X, d.conn.Root())
	region, err := fetch.Reply()
	if err != nil {
		return nil, screen, display.Err(err)
	}
	g, err := geometry.Reply()
	if err != nil {
		return nil, screen, display.Err(err)
	}
	for _, r := range region.Rectangles {
		corner := image.Pt(int(r.X), int(r.Y))
		changed = append(changed, image.Rectangle{corner, corner.Add(image.Pt(int(r.Width), int(r.Height)))})
	}
	return changed, image.Rect(0, 0, int(g.Width), int(g.Height)), nil
}

func (d *damaged) close() error { return d.conn.Close() }
