// Package encode turns pictures into the form in which a model gets them: a PNG or JPEG file, as a data URL.
//
// # Which format
//
// PNG is the default: it is exact, and quicker to make. On a busy desktop (testdata/desktop.png, a browser, a terminal and
// a dialog before something like a photograph), shown as 1280x720, this was measured with one processor; the words are
// those that tesseract read, of 109.
//
//	format                          time   bytes   words   mean error
//	PNG                             1      344 K   60      none
//	PNG, image/png at BestSpeed     5      354 K
//	JPEG of quality 75              2      115 K   61      2.0 of 255
//	JPEG of quality 85              2.2    143 K   61      1.5
//	JPEG of quality 95              2.4    226 K   54      0.9
//
// where 1 is about 10 ms, and with two processors about 6 ms. So JPEG is for slow links: at quality 85 it has less than half
// of the bytes and is as legible, but takes twice as long, and halves the resolution of colours.
//
// # How PNG is fast
//
// Colours are taken out of the four bytes of a pixel and filtered eight bytes at a time; each row is filtered by its left
// or its upper neighbour, whichever more pixels are equal to; klauspost/compress deflates at its fastest level; and a
// large picture is cut into strips, which are done at the same time. A palette would not help: even a plain
// desktop of a terminal and a dialog has more than a thousand colours, as the edges of letters are smoothed.
package encode
